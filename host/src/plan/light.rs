//! A plan's calls over light.

#[cfg(feature = "gpu")]
use std::sync::Arc;

#[cfg(feature = "gpu")]
use super::engines::OnGpus;
use super::ran::Ran;
use super::{Channels, Plan};
#[cfg(feature = "gpu")]
use crate::Variant;
#[cfg(feature = "gpu")]
use crate::gpu::engine::Engine;
use crate::image::stored::{StoredView, StoredViewMut};
#[cfg(feature = "gpu")]
use crate::kernels::{self, prepared::Prepared};
use crate::light::Tables;
#[cfg(feature = "gpu")]
use crate::problem::Problem;
use crate::progress::Stage;
use crate::{Error, Family, Result, Scalar, cpu};

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

    /// The types of what is summed, for pixels and results of these types: light is in f32.
    pub(super) fn summed(&self, kinds: (Scalar, Scalar)) -> (Scalar, Scalar) {
        if self.light.is_some() { (Scalar::F32, Scalar::F32) } else { kinds }
    }

    /// The kernels for light. If `weighted`, the last channel is alpha and weighs the others.
    #[cfg(feature = "gpu")]
    pub(super) fn prepare_light(
        &self,
        (tables, weighted): (&Arc<Tables>, bool),
        problem: &Problem,
        gpus: &OnGpus,
        engine: &Engine,
    ) -> Result<Prepared> {
        let sums = self.prepare_sums(problem, weighted, gpus, engine)?;
        let kinds = (problem.source, problem.target);
        Ok(kernels::light::prepare(sums, tables.clone(), kinds, weighted))
    }

    /// The kernel for sums over planes that are made of a problem's pixels: see
    /// [`Problem::of_planes`].
    #[cfg(feature = "gpu")]
    pub(super) fn prepare_sums(
        &self,
        problem: &Problem,
        divided: bool,
        gpus: &OnGpus,
        engine: &Engine,
    ) -> Result<Prepared> {
        let takes = |variant: &Variant| match variant.family() {
            _ if self.light.is_none() && variant.takes_only_bytes() => false,
            Family::Fourier => !divided,
            Family::SpectraPasses => !divided && !problem.makes_bytes(),
            _ => true,
        };
        let variant = self.variant.filter(takes);
        self.prepare_variant(variant, &problem.of_planes(divided), gpus, engine)
    }

    /// The kernels for pixels of type `source` whose last channel is alpha and weighs the others.
    /// Light alone needs the problem.
    #[cfg(feature = "gpu")]
    pub(super) fn prepare_weighted(
        &self,
        source: Scalar,
        problem: impl FnOnce() -> Problem,
        gpus: &OnGpus,
        engine: &Engine,
    ) -> Result<Prepared> {
        if self.is_masked(source) {
            Channels::Weighted.of_known()?;
        }
        match &self.light {
            Some(tables) => self.prepare_light((tables, true), &problem(), gpus, engine),
            None => Ok(kernels::weighted::prepare()),
        }
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
