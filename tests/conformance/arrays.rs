//! Passes over arrays in device memory against those in host memory: the same bytes, for arrays of
//! up to six dimensions in any layout, all types, windows and borders.

use conformance::product::Gpu;
use conformance::select::Selection;
use conformance::suite;
use libtest_mimic::{Failed, Trial};

pub(crate) fn trials(selection: Selection, gpu: &Gpu) -> Vec<Trial> {
    let count = match selection {
        Selection::Full => 20_000,
        Selection::Small => 100,
        Selection::Emulated => 4000,
    };
    vec![
        suite::gpu_trial("arrays::filtered::gpu", gpu, move || test::filtered(count)),
        suite::gpu_trial("arrays::converted::gpu", gpu, move || test::converted(count / 2)),
        suite::gpu_trial("arrays::joined::gpu", gpu, move || test::joined(count / 4)),
        suite::gpu_trial("arrays::refused::gpu", gpu, test::refused),
    ]
}

/// Launches every entry for arrays at least once.
#[cfg(feature = "gpu")]
pub(crate) fn launch_entries() -> Result<(), Failed> {
    test::filtered(20)?;
    test::converted(10)?;
    test::joined(10)
}

#[cfg(not(feature = "gpu"))]
mod test {
    use super::*;

    pub(super) fn filtered(_: usize) -> Result<(), Failed> {
        suite::no_gpu()
    }

    pub(super) fn converted(_: usize) -> Result<(), Failed> {
        suite::no_gpu()
    }

    pub(super) fn joined(_: usize) -> Result<(), Failed> {
        suite::no_gpu()
    }

    pub(super) fn refused() -> Result<(), Failed> {
        suite::no_gpu()
    }
}

#[cfg(feature = "gpu")]
mod test {
    use apron::gpu::DeviceImage;
    use apron::passes::{self, Array, Cast, Kind, Reach, Sums};
    use apron::{Border, Image, Layout, Result, Scalar, gpu};
    use fastrand::Rng;

    use super::*;

    const TYPES: [Type; 10] = [
        Type::of::<u8>(),
        Type::of::<i8>(),
        Type::of::<u16>(),
        Type::of::<i16>(),
        Type::of::<u32>(),
        Type::of::<i32>(),
        Type::of::<u64>(),
        Type::of::<i64>(),
        Type::of::<f32>(),
        Type::of::<f64>(),
    ];

    /// A type of elements, with what tests do with their bytes.
    #[derive(Clone, Copy)]
    struct Type {
        kind: Kind,
        store: fn(f64, &mut [u8]),
        load: fn(&[u8]) -> f64,
        /// An integer modulo 2^64; `None` for floats.
        whole: fn(&[u8]) -> Option<i64>,
        single: fn(&[u8]) -> f32,
        /// An element, squared, plus the square of another one, and the root of the sum.
        joined: fn(&[u8], &[u8], &mut [u8]),
    }

    /// Arithmetic as NumPy's: integers wrap around.
    trait Joined: Cast + bytemuck::Pod {
        fn whole(self) -> Option<i64>;
        fn single(self) -> f32;
        fn squared(self) -> Self;
        fn plus(self, other: Self) -> Self;
    }

    macro_rules! joined {
        ($($integer:ty)*; $($float:ty)*) => {
            $(impl Joined for $integer {
                fn whole(self) -> Option<i64> {
                    Some(self as i64)
                }
                fn single(self) -> f32 {
                    self as f32
                }
                fn squared(self) -> Self {
                    self.wrapping_mul(self)
                }
                fn plus(self, other: Self) -> Self {
                    self.wrapping_add(other)
                }
            })*
            $(impl Joined for $float {
                fn whole(self) -> Option<i64> {
                    None
                }
                fn single(self) -> f32 {
                    self as f32
                }
                fn squared(self) -> Self {
                    self * self
                }
                fn plus(self, other: Self) -> Self {
                    self + other
                }
            })*
        };
    }

    joined!(u8 i8 u16 i16 u32 i32 u64 i64; f32 f64);

    impl Type {
        const fn of<T: Joined>() -> Self {
            Self {
                kind: Kind::cast::<T>(),
                store: |value, bytes| bytes.copy_from_slice(bytemuck::bytes_of(&T::cast(value))),
                load: |bytes| bytemuck::pod_read_unaligned::<T>(bytes).to_f64(),
                whole: |bytes| bytemuck::pod_read_unaligned::<T>(bytes).whole(),
                single: |bytes| bytemuck::pod_read_unaligned::<T>(bytes).single(),
                joined: |one, other, bytes| {
                    let [one, other] = [one, other].map(bytemuck::pod_read_unaligned::<T>);
                    let sum = one.squared().plus(other.squared());
                    bytes.copy_from_slice(bytemuck::bytes_of(&T::cast(sum.to_f64().sqrt())));
                },
            }
        }
    }

    /// An array in bytes of its own, of which it is the only user.
    #[derive(Clone)]
    struct Held {
        bytes: Vec<u8>,
        first: usize,
        shape: Vec<usize>,
        strides: Vec<isize>,
        of: Type,
    }

    impl Held {
        /// Zeros in a random layout: axes in any order, forwards or backwards, with gaps.
        fn new(shape: &[usize], of: Type, random: &mut Rng) -> Self {
            let mut order: Vec<usize> = (0..shape.len()).collect();
            if random.bool() {
                random.shuffle(&mut order);
            }
            let size = of.kind.size;
            let (mut strides, mut first, mut len) = (vec![0; shape.len()], 0, size);
            for &axis in order.iter().rev() {
                let step = len + size * if random.u8(..3) == 0 { random.usize(..3) } else { 0 };
                let reach = step * (shape[axis] - 1);
                let is_backwards = random.u8(..4) == 0;
                strides[axis] = if is_backwards { -(step as isize) } else { step as isize };
                first += if is_backwards { reach } else { 0 };
                len = reach + len.max(step);
            }
            Self { bytes: vec![0; len], first, shape: shape.to_vec(), strides, of }
        }

        /// The offset of each element's bytes, in C's order.
        fn offsets(&self) -> Vec<usize> {
            let mut offsets = vec![self.first as isize];
            for (&len, &stride) in self.shape.iter().zip(&self.strides) {
                let along = |&at: &isize| (0..len as isize).map(move |index| at + index * stride);
                offsets = offsets.iter().flat_map(along).collect();
            }
            offsets.into_iter().map(|offset| offset as usize).collect()
        }

        fn fill(&mut self, mut value: impl FnMut() -> f64) {
            for offset in self.offsets() {
                (self.of.store)(value(), &mut self.bytes[offset..][..self.of.kind.size]);
            }
        }

        fn element(&self, offset: usize) -> &[u8] {
            &self.bytes[offset..][..self.of.kind.size]
        }

        /// The array whose bytes begin at an address.
        fn at(&self, bytes: *mut u8) -> Array {
            Array {
                data: bytes.wrapping_add(self.first),
                kind: self.of.kind,
                shape: self.shape.clone(),
                strides: self.strides.clone(),
            }
        }

        /// A copy of the bytes in device memory, and the array there.
        fn upload(&self, gpu: &gpu::Gpu) -> Result<(DeviceImage, Array)> {
            let row = Image::from_vec(self.bytes.clone(), self.bytes.len(), 1, 1)?;
            let mut image = gpu.image_of(row.shape(), Scalar::U8, Layout::Interleaved)?;
            gpu.upload_into(&row.view(), &mut image)?;
            let array = self.at(std::ptr::without_provenance_mut(image.address() as usize));
            Ok((image, array))
        }

        /// Fails unless the bytes are the same, but for those of two NaNs.
        fn check(&self, found: &[u8], what: &str) -> std::result::Result<(), Failed> {
            let mut found = found.to_vec();
            for offset in self.offsets() {
                let bytes = &mut found[offset..][..self.of.kind.size];
                if (self.of.load)(bytes).is_nan() && (self.of.load)(self.element(offset)).is_nan() {
                    bytes.copy_from_slice(self.element(offset));
                }
            }
            match found.iter().zip(&self.bytes).position(|(found, expected)| found != expected) {
                None => Ok(()),
                Some(at) => Err(format!(
                    "{what}, shape {:?}, strides {:?}: byte {at} is {} and not {}",
                    self.shape, self.strides, found[at], self.bytes[at]
                )
                .into()),
            }
        }
    }

    /// A value that a type can hold, or anything for floats.
    fn value(of: Type, random: &mut Rng) -> f64 {
        match (of.kind.is_integer, random.u8(..32)) {
            (true, _) => {
                let bytes: Vec<u8> = (0..of.kind.size).map(|_| random.u8(..)).collect();
                (of.load)(&bytes)
            }
            (false, 0) => [f64::NAN, f64::INFINITY, 1e300, -1e-310, 0.0, -0.0][random.usize(..6)],
            (false, _) => (random.f64() - 0.5) * 10f64.powi(random.i32(-3..6)),
        }
    }

    fn size(random: &mut Rng, most: usize) -> usize {
        if random.u8(..4) == 0 { 1 } else { 1 + random.usize(..most) }
    }

    /// A window with its sums.
    fn window(shape: &[usize], random: &mut Rng) -> (Vec<Reach>, Sums) {
        let mut reach = vec![Reach::default(); shape.len()];
        let axis = random.usize(..shape.len());
        let origin = |size: usize, random: &mut Rng| {
            random.i32(-((size / 2) as i32)..=(size as i32 - 1) / 2) as isize
        };
        let sums = match random.u8(..4) {
            0 => {
                let size = 2 + random.usize(..20);
                reach[axis] = Reach::new(size, origin(size, random));
                Sums::Running { axis, size }
            }
            1 => {
                let pairs = random.usize(..12);
                let size = 2 * pairs + 1;
                reach[axis] = Reach::new(size, origin(size, random));
                let mut tap = || random.f64() - 0.4;
                Sums::Paired {
                    middle: (pairs, tap()),
                    pairs: (0..pairs).map(|at| (at, size - 1 - at, tap())).collect(),
                    sign: if random.bool() { 1.0 } else { -1.0 },
                }
            }
            kind => {
                let mut count = 1;
                let mut windows = 0;
                for (at, reach) in reach.iter_mut().enumerate() {
                    let wanted = if kind == 2 { at == axis } else { windows < 4 };
                    let size = if wanted { size(random, 4) } else { 1 };
                    windows += usize::from(size > 1);
                    count *= size;
                    *reach = Reach::new(size, origin(size, random));
                }
                let mut taps: Vec<_> =
                    (0..count).map(|position| (position, random.f64() - 0.4)).collect();
                if kind == 2 {
                    random.shuffle(&mut taps);
                }
                Sums::InOrder { start: if random.bool() { 0.0 } else { -0.0 }, taps }
            }
        };
        (reach, sums)
    }

    fn shape(random: &mut Rng) -> Vec<usize> {
        let dims = 1 + random.usize(..6);
        let most = [300, 40, 12, 8, 5, 4][dims - 1];
        (0..dims).map(|_| size(random, most)).collect()
    }

    pub(super) fn filtered(count: usize) -> std::result::Result<(), Failed> {
        let gpu = gpu::Gpu::open(0)?;
        let mut stream = gpu.stream()?;
        for number in 0..count {
            let mut random = Rng::with_seed(0xa55a + number as u64);
            let shape = shape(&mut random);
            let (from, to) = match number {
                0..100 => (TYPES[number / 10], TYPES[number % 10]),
                _ => (TYPES[random.usize(..10)], TYPES[random.usize(..10)]),
            };
            let (mut source, mut target) =
                (Held::new(&shape, from, &mut random), Held::new(&shape, to, &mut random));
            source.fill(|| value(from, &mut random));
            let (reach, sums) = window(&shape, &mut random);
            let outside = value(Type::of::<f64>(), &mut random);
            let border = [
                Border::Constant(outside),
                Border::Replicate,
                Border::Reflect,
                Border::Reflect101,
                Border::Wrap,
            ][random.usize(..5)];
            let (there, device_source) = source.upload(&gpu)?;
            let (result, device_target) = target.upload(&gpu)?;
            // SAFETY: the arrays lie in images that live until the stream has passed the work.
            unsafe {
                stream.filter_array(&device_source, &device_target, &reach, &sums, border)?;
            }
            stream.synchronize()?;
            drop(there);
            let found = gpu.download_stored::<u8>(&result)?.into_vec();
            let pointers = (source.bytes.as_mut_ptr(), target.bytes.as_mut_ptr());
            let arrays = (source.at(pointers.0), target.at(pointers.1));
            // SAFETY: the arrays lie in these bytes, which nobody else uses.
            unsafe {
                passes::filter(&arrays.0, &arrays.1, &reach, &sums, border, &|_, _| Ok(()))?;
            }
            let types = (from.kind.name, to.kind.name);
            target.check(&found, &format!("number {number}, {types:?}, {border}, {reach:?}"))?;
        }
        Ok(())
    }

    pub(super) fn converted(count: usize) -> std::result::Result<(), Failed> {
        let gpu = gpu::Gpu::open(0)?;
        let mut stream = gpu.stream()?;
        for number in 0..count {
            let mut random = Rng::with_seed(0x55aa + number as u64);
            let shape = shape(&mut random);
            let (from, to) = (TYPES[number % 10], TYPES[number / 10 % 10]);
            let mut source = Held::new(&shape, from, &mut random);
            source.fill(|| value(from, &mut random));
            let mut expected = Held::new(&shape, to, &mut random);
            let (_there, device_source) = source.upload(&gpu)?;
            let (result, device_target) = expected.upload(&gpu)?;
            // SAFETY: the arrays lie in images that live until the stream has passed the work.
            unsafe { stream.convert_array(&device_source, &device_target)? };
            stream.synchronize()?;
            let found = gpu.download_stored::<u8>(&result)?.into_vec();
            for (from_at, at) in source.offsets().into_iter().zip(expected.offsets()) {
                let element = source.element(from_at);
                let place = &mut expected.bytes[at..][..to.kind.size];
                match (from.whole)(element) {
                    _ if to.kind.name == "f32" => {
                        place.copy_from_slice(&(from.single)(element).to_ne_bytes());
                    }
                    Some(whole) if to.kind.is_integer => {
                        place.copy_from_slice(&whole.to_le_bytes()[..to.kind.size]);
                    }
                    _ => (to.store)((from.load)(element), place),
                }
            }
            let types = (from.kind.name, to.kind.name);
            expected.check(&found, &format!("number {number}, {types:?}"))?;
        }
        Ok(())
    }

    pub(super) fn joined(count: usize) -> std::result::Result<(), Failed> {
        let gpu = gpu::Gpu::open(0)?;
        let mut stream = gpu.stream()?;
        for number in 0..count {
            let mut random = Rng::with_seed(0x5aa5 + number as u64);
            let shape = shape(&mut random);
            let of = TYPES[number % TYPES.len()];
            let [mut source, mut target] = [(); 2].map(|()| Held::new(&shape, of, &mut random));
            source.fill(|| value(of, &mut random));
            target.fill(|| value(of, &mut random));
            let (_there, device_source) = source.upload(&gpu)?;
            let (result, device_target) = target.upload(&gpu)?;
            // In one step, or in several.
            // SAFETY: the arrays lie in images that live until the stream has passed the work.
            unsafe {
                if random.bool() {
                    stream.join_array(Some(&device_source), &device_target, (true, true), true)?;
                } else {
                    stream.join_array(None, &device_target, (true, false), false)?;
                    stream.join_array(
                        Some(&device_source),
                        &device_target,
                        (false, true),
                        false,
                    )?;
                    stream.join_array(None, &device_target, (false, false), true)?;
                }
            }
            stream.synchronize()?;
            let found = gpu.download_stored::<u8>(&result)?.into_vec();
            let mut expected = target.clone();
            for (from, at) in source.offsets().into_iter().zip(target.offsets()) {
                let place = &mut expected.bytes[at..][..of.kind.size];
                (of.joined)(target.element(at), source.element(from), place);
            }
            expected.check(&found, &format!("number {number}, {}", of.kind.name))?;
        }
        Ok(())
    }

    /// Impossible requests are errors that name the value.
    pub(super) fn refused() -> std::result::Result<(), Failed> {
        let gpu = gpu::Gpu::open(0)?;
        let mut stream = gpu.stream()?;
        let image = gpu.upload(&Image::from_vec(vec![0u8; 4096], 4096, 1, 1)?.view())?;
        let array = |at: usize, kind: Kind, shape: &[usize]| {
            let mut strides = vec![kind.size as isize; shape.len()];
            for axis in (1..shape.len()).rev() {
                strides[axis - 1] = strides[axis] * shape[axis] as isize;
            }
            let data = std::ptr::without_provenance_mut(image.address() as usize + at);
            Array { data, kind, shape: shape.to_vec(), strides }
        };
        let one = Sums::InOrder { start: 0.0, taps: vec![(0, 1.0)] };
        let three = Reach::new(3, 0);
        let float = Kind::cast::<f32>();
        let cases: [(&str, Array, Array, Vec<Reach>, Border); 7] = [
            (
                "f16",
                array(0, Kind::of::<apron::f16>(), &[4]),
                array(64, float, &[4]),
                vec![three],
                Border::Wrap,
            ),
            (
                "cast",
                array(0, float, &[4]),
                array(64, Kind::of::<f32>(), &[4]),
                vec![three],
                Border::Wrap,
            ),
            ("keep", array(0, float, &[4]), array(64, float, &[4]), vec![three], Border::Keep),
            ("multiples", array(2, float, &[4]), array(64, float, &[4]), vec![three], Border::Wrap),
            ("[5]", array(0, float, &[4]), array(64, float, &[5]), vec![three], Border::Wrap),
            (
                "2 axes",
                array(0, float, &[4, 2]),
                array(64, float, &[4, 2]),
                vec![three],
                Border::Wrap,
            ),
            (
                "at most 4",
                array(0, float, &[2; 5]),
                array(512, float, &[2; 5]),
                vec![three; 5],
                Border::Wrap,
            ),
        ];
        for (word, source, target, reach, border) in cases {
            // SAFETY: as in `filtered`.
            let outcome = unsafe { stream.filter_array(&source, &target, &reach, &one, border) };
            check_refusal(word, outcome)?;
        }
        let (source, target) = (array(0, Kind::cast::<i32>(), &[4]), array(64, float, &[4]));
        // SAFETY: as in `filtered`.
        check_refusal("i32", unsafe {
            stream.join_array(Some(&source), &target, (false, false), false)
        })?;
        // Nothing to do.
        let empty = array(0, float, &[4, 0]);
        // SAFETY: there are no values.
        unsafe { stream.filter_array(&empty, &empty, &[three; 2], &one, Border::Wrap)? };
        Ok(stream.synchronize()?)
    }

    fn check_refusal(word: &str, outcome: Result<()>) -> std::result::Result<(), Failed> {
        match outcome {
            Ok(()) => Err(format!("\"{word}\" was not refused").into()),
            Err(error) if error.to_string().contains(word) => Ok(()),
            Err(error) => Err(format!("\"{error}\" lacks \"{word}\"").into()),
        }
    }
}
