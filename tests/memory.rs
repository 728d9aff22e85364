//! What the CPU's engine needs in memory beside the source and the destination, whatever the image's size: at most 16 MiB
//! and a few rows for each thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use apron::{Device, Filter, Image, Pixel, Plan};

/// Counts what is allocated, and the most that ever was.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does the work. `realloc` and `alloc_zeroed` are the trait's own, which call these two.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller's promise is the same.
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

/// Bytes allocated while a picture is filtered, beyond those from before.
fn extra<S: Pixel, D: Pixel>(filter: &Filter, size: (usize, usize), channels: usize) -> usize {
    let plan = Plan::builder(filter).device(Device::Cpu).build().unwrap();
    let src = Image::<S>::zeroed(size.0, size.1, channels).unwrap();
    let mut dst = Image::<D>::zeroed(size.0, size.1, channels).unwrap();
    let before = NOW.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    plan.run(&src.view(), &mut dst.view_mut()).unwrap();
    PEAK.load(Ordering::Relaxed) - before
}

// One test, as all threads share the count.
#[test]
fn scratch_does_not_grow_with_the_image() {
    rayon::broadcast(|_| ());
    let random = |cols: usize, rows: usize| -> Filter {
        let taps: Vec<f32> = (0..cols * rows).map(|i| ((i * 7919 + 13) % 101) as f32 / 5000.0).collect();
        Filter::from_taps(cols, rows, &taps).unwrap()
    };
    let filters = [
        random(3, 3),
        random(5, 5),
        random(17, 17),
        random(1, 101),
        "gaussian:sigma=1".parse().unwrap(),
        "gaussian:sigma=15".parse().unwrap(),
        // Too large for results defined by the sum over all taps.
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
            assert!(right, "{cols}x{rows} taps, {width}x{height} pixels: {found:?} bytes, at most {most}");
        }
    }
    // The count counts: the twin of a variant works on whole planes.
    let whole = Plan::builder(&filters[0]).device(Device::Cpu).variant(apron::Variant::DirectNaive).build().unwrap();
    let (src, mut dst) = (Image::<u8>::zeroed(2000, 2000, 1).unwrap(), Image::<u8>::zeroed(2000, 2000, 1).unwrap());
    PEAK.store(NOW.load(Ordering::Relaxed), Ordering::Relaxed);
    let before = NOW.load(Ordering::Relaxed);
    whole.run(&src.view(), &mut dst.view_mut()).unwrap();
    assert!(PEAK.load(Ordering::Relaxed) - before > 16 << 20);
}
