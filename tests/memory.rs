//! The memory that the CPU engine needs in addition to source and destination, for images of any
//! size: at most 16 MiB and a few rows for each thread. Also tests the error if an allocation
//! fails.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use apron::{Border, Device, Error, Filter, Image, Pixel, Plan, Result, Variant};

/// Counts allocated bytes and their peak. Can make one large allocation fail.
struct Counting;

/// Bytes of an allocation from which on it may fail. Smaller allocations belong to any program, and
/// Rust ends the process if the system denies one.
const LARGE: usize = 1 << 17;

/// The number of the large allocation that fails, counted down to 0. `usize::MAX`: none fails.
static FAIL: AtomicUsize = AtomicUsize::new(usize::MAX);

/// All tests share the counts.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does the work. `realloc` and `alloc_zeroed` are the trait's own
// methods, which call these two.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() >= LARGE
            && FAIL.load(Ordering::Relaxed) != usize::MAX
            && FAIL.fetch_sub(1, Ordering::Relaxed) == 0
        {
            return std::ptr::null_mut();
        }
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller makes the same promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The peak of bytes allocated while a picture is filtered, beyond those allocated before.
fn extra<S: Pixel, D: Pixel>(filter: &Filter, size: (usize, usize), channels: usize) -> usize {
    let plan = Plan::builder(filter).device(Device::Cpu).build().unwrap();
    let src = Image::<S>::zeroed(size.0, size.1, channels).unwrap();
    let mut dst = Image::<D>::zeroed(size.0, size.1, channels).unwrap();
    let before = NOW.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    plan.run(&src.view(), &mut dst.view_mut()).unwrap();
    PEAK.load(Ordering::Relaxed) - before
}

#[test]
fn scratch_does_not_grow_with_the_image() {
    let _alone = alone();
    rayon::broadcast(|_| ());
    let random = |cols: usize, rows: usize| -> Filter {
        let taps: Vec<f32> =
            (0..cols * rows).map(|i| ((i * 7919 + 13) % 101) as f32 / 5000.0).collect();
        Filter::from_taps(cols, rows, &taps).unwrap()
    };
    let filters = [
        random(3, 3),
        random(5, 5),
        random(17, 17),
        random(1, 101),
        "gaussian:sigma=1".parse().unwrap(),
        "gaussian:sigma=15".parse().unwrap(),
        // More than 65536 taps.
        "gaussian:sigma=35".parse().unwrap(),
    ];
    for filter in &filters {
        let sizes = [(500, 300), (4000, 600), (600, 4000), (20_000, 40)];
        for (width, height) in sizes {
            let rows = 8 * width * 4 * 4 * rayon::current_num_threads();
            let most = (16 << 20) + rows;
            let found = [
                extra::<u8, u8>(filter, (width, height), 1),
                extra::<u8, u8>(filter, (width, height), 4),
                extra::<f32, f32>(filter, (width, height), 3),
                extra::<u16, f32>(filter, (width, height), 1),
            ];
            let (cols, rows) = (filter.cols(), filter.rows());
            let right = found.iter().all(|&found| found <= most);
            assert!(
                right,
                "{cols}x{rows} taps, {width}x{height} pixels: {found:?} bytes, at most {most}"
            );
        }
    }
    // The counter works: a picture of this size exceeds the limit.
    let before = NOW.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    drop(Image::<u8>::zeroed(5000, 5000, 1).unwrap());
    assert!(PEAK.load(Ordering::Relaxed) - before > 16 << 20);
}

/// Builds a plan and filters a picture with it.
fn job<S: Pixel, D: Pixel>(
    filter: &str,
    variant: Option<Variant>,
    border: Border,
) -> Result<Image<D>> {
    let (width, height) = (700, 500);
    let src = Image::<S>::from_vec(crowd(width * height)?, width, height, 1)?;
    let plan = Plan::builder(filter.parse::<apron::Filter>()?)
        .border(border)
        .device(Device::Cpu)
        .variant(variant)
        .build()?;
    let mut dst = Image::<D>::zeroed(width, height, 1)?;
    plan.run(&src.view(), &mut dst.view_mut())?;
    Ok(dst)
}

/// Pixels from 0 to 250. The allocation may fail.
fn crowd<P: Pixel>(len: usize) -> Result<Vec<P>> {
    let mut pixels = Vec::new();
    pixels.try_reserve_exact(len).map_err(|_| Error::HostMemory { bytes: len })?;
    pixels.extend((0..len).map(|i| P::from_f32((i * 7919 % 251) as f32)));
    Ok(pixels)
}

/// Each large allocation of a job fails in turn. The job returns an error for exhausted memory, its
/// memory is freed, and the next job has the right result. An allocation without an error path
/// would end this process.
#[test]
fn an_allocation_that_fails_is_an_error() {
    let _alone = alone();
    rayon::broadcast(|_| ());
    let mut failed = 0;
    for (filter, variant) in [
        ("gaussian:sigma=2", None),
        ("gaussian:sigma=2", Some(Variant::DirectNaive)),
        // Exact sums resolve the results in 8 bits.
        ("gaussian:sigma=35", None),
        ("motion:length=15,angle=20", None),
        ("motion:length=71,angle=20", Some(Variant::Fourier)),
        ("box:size=20", None),
    ] {
        failed += denied(|| job::<f32, f32>(filter, variant, Border::Reflect101), filter);
        failed += denied(|| job::<u8, u8>(filter, variant, Border::Keep), filter);
    }
    assert!(failed > 30, "{failed} allocations were denied");
}

/// Denies each large allocation of the job in turn. Returns their number.
fn denied<P: Pixel>(job: impl Fn() -> Result<Image<P>>, what: &str) -> usize {
    let expected = match job() {
        Err(Error::Unsupported { .. }) => return 0,
        result => result.unwrap(),
    };
    for number in 0.. {
        let before = NOW.load(Ordering::Relaxed);
        FAIL.store(number, Ordering::Relaxed);
        let result = job();
        let spare = FAIL.swap(usize::MAX, Ordering::Relaxed);
        match result {
            // The job made fewer large allocations than this.
            Ok(found) if spare <= number => {
                assert!(found == expected, "{what}: another result");
                return number;
            }
            Err(Error::HostMemory { bytes }) => assert!(bytes > 0),
            other => panic!("{what}: allocation {number} was denied: {:?}", other.map(drop)),
        }
        let left = NOW.load(Ordering::Relaxed).saturating_sub(before);
        // Less than a large allocation may be kept for the next job, such as a thread's own memory.
        assert!(left < LARGE, "{what}: {left} bytes are left of a job that failed");
        assert!(
            job().unwrap() == expected,
            "{what}: another result after allocation {number} was denied"
        );
    }
    unreachable!("jobs end")
}
