//! A plan's calls over light.

use super::Plan;
use super::ran::Ran;
use crate::image::stored::{StoredView, StoredViewMut};
use crate::light::Tables;
use crate::plan::Channels;
use crate::progress::Stage;
use crate::{Error, Family, Result, cpu};

/// How many times as long as others filters over light take, about.
const LIGHT: f64 = 2.5;

impl Plan {
    /// Filters over light on the CPU, as a stage of a call.
    pub(super) fn run_light_on_cpu(
        &self,
        (engine, tables): (&cpu::Engine, &Tables),
        family: Family,
        channels: Channels,
        src: &StoredView<'_>,
        dst: &mut StoredViewMut<'_>,
        stage: &Stage<'_>,
    ) -> Result<Ran> {
        let (filtered, weighted) = match channels {
            Channels::First(filtered) => (filtered, false),
            Channels::Weighted => (src.shape().channels, true),
        };
        engine.run_light(family, (tables, weighted), src, (dst, filtered), stage)?;
        Ok(Ran::Light)
    }

    /// Whether values stand for light.
    pub(crate) fn is_light(&self) -> bool {
        self.light.is_some()
    }

    /// How many times as long sums take because values stand for light.
    pub(super) fn times_light(&self) -> f64 {
        if self.light.is_some() { LIGHT } else { 1.0 }
    }

    /// # Errors
    /// [`Error::Parameter`] if the plan filters light, or compares results with pixels: a call in
    /// f64, or with a mask, does neither.
    pub(super) fn check_is_plain(&self) -> Result<()> {
        let (name, value) = match (&self.light, self.filter.least_change()) {
            (Some(_), _) => ("light", "linear".to_owned()),
            (None, 0.0) => return Ok(()),
            (None, _) => ("the filter", self.filter.to_string()),
        };
        let expected = "values as they are stored, and no threshold, for masks and for values that are \
                        filtered in f64; for the latter, convert them to f32 first";
        Err(Error::Parameter { name, value, expected: expected.to_owned() })
    }
}
