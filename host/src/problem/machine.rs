//! What a GPU can do in a second, and the times that follow from those measured on an H200.
//!
//! A kernel's measured time has two parts that run at the same time: what it reads and writes, and
//! what it computes. The longer one is the kernel's time. On another GPU each part takes longer or
//! shorter by the ratio of the two GPUs' rates. That is a calculation: what a GPU does with its
//! caches, and how well a kernel hides latency there, has no part in it.

use std::ops::{Add, Mul};

use super::model::GpuModel;

/// What sets a kernel's predicted time on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Bound {
    /// Starting kernels and filling the GPU: the picture is small.
    Start,
    /// Reading and writing the GPU's memory.
    Memory,
    /// Instructions, of which the most are f32 multiply-adds.
    Floats,
    /// Instructions, of which the most are multiply-adds of 32-bit integers.
    Integers,
    /// Products of 8-bit integers on the tensor cores.
    Tensor,
}

impl Bound {
    /// What it is, as a phrase.
    pub fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Memory => "memory",
            Self::Floats => "f32 arithmetic",
            Self::Integers => "integer arithmetic",
            Self::Tensor => "tensor cores",
        }
    }
}

/// The properties of a GPU that kernels' policies and times depend on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Machine {
    /// Bytes a second of the memory, read and written.
    bandwidth: f64,
    /// Operations a second: instructions that kernels issue, multiply-adds of 32-bit integers, and
    /// those of 8-bit integers on the tensor cores.
    floats: f64,
    integers: f64,
    tensor: f64,
    /// Streaming multiprocessors.
    pub(crate) multiprocessors: f64,
    /// Bytes of level-2 cache.
    pub(crate) l2_cache: f64,
    /// Bytes of shared memory that a block can have.
    pub(crate) shared_memory: usize,
}

/// The instructions that a multiprocessor issues in a clock, for a thread each; and the share of
/// multiply-adds among a kernel's instructions, by estimate.
const ISSUED: f64 = 128.0;
const SHARE: f64 = 2.0 / 3.0;

/// Megabytes a microsecond that kernels with few taps read and write on an H200: 85 % of a copy.
const REACHED: f64 = 3.5;

/// The same of a copy, which no kernel exceeds.
const COPIED: f64 = 4.0;

/// The memory sets a kernel's measured time if it is less than so many times that of its bytes.
const NEAR: f64 = 1.05;

impl Machine {
    /// An H200, on which times were measured.
    pub(crate) const H200: Self = Self::of(&GpuModel::H200);

    /// The machine of a model.
    pub(crate) const fn of(model: &GpuModel) -> Self {
        let [floats, integers, tensor] = model.per_clock();
        let clocks = model.multiprocessors as f64 * model.clock;
        let floats = floats / SHARE;
        Self {
            bandwidth: model.bandwidth,
            floats: clocks * if floats < ISSUED { floats } else { ISSUED },
            integers: clocks * integers,
            tensor: clocks * tensor,
            multiprocessors: model.multiprocessors as f64,
            l2_cache: model.l2_cache as f64,
            shared_memory: model.shared_memory,
        }
    }

    /// The time here of work whose arithmetic takes `measured` microseconds on an H200, and which
    /// reads and writes so many `megabytes`.
    pub(crate) fn time(&self, bound: Bound, megabytes: f64, measured: f64) -> Time {
        self.of_parts(bound, megabytes, measured, measured)
    }

    /// The same, where the arithmetic alone would take another time on an H200.
    fn of_parts(&self, bound: Bound, megabytes: f64, measured: f64, arithmetic: f64) -> Time {
        let h200 = Self::H200;
        let measured = measured.max(megabytes / COPIED);
        let longer = match bound {
            Bound::Integers => h200.integers / self.integers,
            Bound::Tensor => h200.tensor / self.tensor,
            _ => h200.floats / self.floats,
        };
        let memory = measured.min(NEAR * megabytes / REACHED);
        let arithmetic = if memory < measured { measured } else { arithmetic.min(measured) };
        Time { us: memory * (h200.bandwidth / self.bandwidth), bound: Bound::Memory }
            .or(Time { us: arithmetic * longer, bound })
    }

    /// The least time of so many million multiply-adds on the tensor cores.
    pub(crate) fn products(&self, millions: f64) -> Time {
        /// The share of the tensor cores' rate that kernels reach.
        const REACHED: f64 = 0.8;
        Time { us: 1e12 * millions / (REACHED * self.tensor), bound: Bound::Tensor }
    }
}

/// A predicted time in microseconds, and what sets it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Time {
    pub(crate) us: f64,
    pub(crate) bound: Bound,
}

impl Time {
    /// That of no work.
    pub(crate) const NONE: Self = Self::start(0.0);

    /// The start of kernels.
    pub(crate) const fn start(us: f64) -> Self {
        Self { us, bound: Bound::Start }
    }

    /// The longer of two that run at the same time.
    pub(crate) fn or(self, other: Self) -> Self {
        if other.us > self.us { other } else { self }
    }
}

impl Add for Time {
    type Output = Self;

    /// One after the other.
    fn add(self, other: Self) -> Self {
        Self { us: self.us + other.us, ..self.or(other) }
    }
}

impl Mul<f64> for Time {
    type Output = Self;

    fn mul(self, times: f64) -> Self {
        Self { us: times * self.us, ..self }
    }
}

/// Measured points: the work for a result, and the microseconds for a million results. Between two
/// points the time is interpolated, beyond the last it is extrapolated.
pub(crate) type Curve = &'static [(f64, f64)];

/// A kernel's times on an H200, and what sets them where the memory does not. From `cargo xtask
/// bench` with 8192x8192 pixels (4096x4096 for 17x17 by the slow ones).
pub(crate) struct Times(pub(crate) Bound, pub(crate) Curve);

impl Times {
    /// The time on a machine for a million results, for each of which so many bytes are read and
    /// written, and so much work is done.
    pub(crate) fn on(&self, machine: &Machine, bytes: f64, work: f64) -> Time {
        let &Self(bound, curve) = self;
        machine.of_parts(bound, bytes, interpolated(curve, work), self.arithmetic(bytes, work))
    }

    /// The time that the arithmetic would take alone: on the line through the first two points that
    /// the memory does not set.
    fn arithmetic(&self, bytes: f64, work: f64) -> f64 {
        let Self(_, curve) = self;
        let mut points = curve.iter().filter(|&&(_, time)| time > NEAR * bytes / REACHED);
        let (x0, y0) = *points.next().unwrap_or(&curve[curve.len() - 1]);
        match points.next() {
            Some(&(x1, y1)) => (y0 + (y1 - y0) * (work - x0) / (x1 - x0)).max(0.0),
            None => y0 * work / x0,
        }
    }
}

/// The time for some work, interpolated between two measured times or extrapolated beyond the last.
pub(crate) fn interpolated(times: Curve, work: f64) -> f64 {
    let last = times.len().saturating_sub(2);
    let at = times.iter().skip(1).take(last).take_while(|&&(measured, _)| measured <= work).count();
    let ((x0, y0), (x1, y1)) = (times[at], times[at + 1]);
    // Below the first point, the first time.
    if work <= x0 { y0 } else { y0 + (y1 - y0) * (work - x0) / (x1 - x0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_interpolated() {
        let times = &[(10.0, 1.0), (20.0, 2.0), (40.0, 6.0)];
        for (work, time) in
            [(5.0, 1.0), (10.0, 1.0), (15.0, 1.5), (20.0, 2.0), (30.0, 4.0), (50.0, 8.0)]
        {
            assert_eq!(interpolated(times, work), time, "{work}");
        }
    }

    #[test]
    fn a_times_part_is_scaled_by_the_rate_that_sets_it() {
        // 8 bytes take 2.4 us on an H200 if nothing else sets the time.
        let times = Times(Bound::Floats, &[(10.0, 2.3), (50.0, 4.0), (100.0, 8.0)]);
        let half = Machine { bandwidth: Machine::H200.bandwidth / 2.0, ..Machine::H200 };
        let slow = Machine { floats: Machine::H200.floats / 4.0, ..Machine::H200 };
        for (machine, work, us, bound) in [
            (Machine::H200, 10.0, 2.3, Bound::Memory),
            (Machine::H200, 100.0, 8.0, Bound::Floats),
            (half, 10.0, 4.6, Bound::Memory),
            (half, 50.0, 4.8, Bound::Memory),
            (half, 100.0, 8.0, Bound::Floats),
            // On an H200 the arithmetic of 12 units takes 0.96 us.
            (slow, 12.0, 3.84, Bound::Floats),
            (slow, 100.0, 32.0, Bound::Floats),
        ] {
            let time = times.on(&machine, 8.0, work);
            assert!((time.us - us).abs() < 1e-9, "{machine:?} {work}: {time:?}");
            assert_eq!(time.bound, bound, "{machine:?} {work}");
        }
    }
}
