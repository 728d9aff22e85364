//! The properties of a GPU that the choice of a kernel depends on, and measured times.

/// The properties of a GPU that kernels' policies and times depend on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Machine {
    pub(crate) model: Model,
    /// Bytes of shared memory that a block can have.
    pub(crate) shared_memory: usize,
}

/// A kind of GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Model {
    H200,
    H100,
    /// A GPU without measurements. Its times are those of an H200, multiplied by a factor: most
    /// kernels are bound by the memory, so the same ones are fastest.
    Other {
        slower: f64,
    },
}

/// Bytes a second of an H200's memory, as its driver reports it; other GPUs are compared with it.
const H200_BANDWIDTH: f64 = 4.9e12;

impl Machine {
    /// An H200, for predictions on machines without one.
    pub(crate) const H200: Self = Self { model: Model::H200, shared_memory: 227 << 10 };

    /// The machine of this name, whose memory moves so many bytes a second (0 if that is not
    /// known).
    pub(crate) fn new(name: &str, bandwidth: u64, shared_memory: usize) -> Self {
        let model = match bandwidth {
            _ if name.contains("H200") => Model::H200,
            _ if name.contains("H100") => Model::H100,
            0 => Model::Other { slower: 1.0 },
            bandwidth => Model::Other { slower: H200_BANDWIDTH / bandwidth as f64 },
        };
        Self { model, shared_memory }
    }

    /// How many times as long as on an H200 work takes that has been measured there alone: 1 where
    /// there are measurements.
    pub(crate) fn slower(&self) -> f64 {
        match self.model {
            Model::H200 | Model::H100 => 1.0,
            Model::Other { slower } => slower,
        }
    }
}

/// Measured points: the work for a result, and the microseconds for a million results. Between two
/// points the time is interpolated, beyond the last it is extrapolated.
pub(crate) type Curve = &'static [(f64, f64)];

/// A kernel's times. From `cargo xtask bench` with 8192x8192 pixels (4096x4096 for 17x17 by the
/// slow ones).
pub(crate) struct Times {
    pub(crate) h200: Curve,
    pub(crate) h100: Curve,
}

impl Times {
    /// The time for some work on a machine.
    pub(crate) fn on(&self, machine: &Machine, work: f64) -> f64 {
        let times = if machine.model == Model::H100 { self.h100 } else { self.h200 };
        machine.slower() * interpolated(times, work)
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
    fn machines_are_told_apart() {
        let times = Times { h200: &[(1.0, 10.0), (2.0, 20.0)], h100: &[(1.0, 12.0), (2.0, 25.0)] };
        for (name, bandwidth, time) in [
            ("NVIDIA H200", 0, 10.0),
            ("NVIDIA H100 80GB HBM3", 0, 12.0),
            ("NVIDIA L4", 245_000_000_000, 200.0),
            ("?", 0, 10.0),
        ] {
            assert_eq!(times.on(&Machine::new(name, bandwidth, 0), 1.0).round(), time, "{name}");
        }
    }
}
