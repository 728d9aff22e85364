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
    /// [`Error::Parameter`] if the plan filters light: a call in f64 does not.
    pub(super) fn check_is_stored(&self) -> Result<()> {
        if self.light.is_none() {
            return Ok(());
        }
        Err(Error::Parameter {
            name: "light",
            value: "linear".to_owned(),
            expected:
                "stored for masks and for values that are filtered in f64; decode the values first"
                    .to_owned(),
        })
    }
}
