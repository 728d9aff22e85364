//! The device layer of `gpu-kernels`, and the GPU functions that only studies need.

#[path = "../../../gpu-kernels/src/device/mod.rs"]
mod shared;

pub(crate) use shared::*;

/// The 32 low bits of the product of the 24 low bits of `a` and of `b`.
#[inline(always)]
pub(crate) fn mul24(a: i32, b: i32) -> i32 {
    let product;
    // SAFETY: arithmetic.
    unsafe {
        asm!(
            "mul24.lo.s32 {}, {}, {};",
            out(reg32) product,
            in(reg32) a,
            in(reg32) b,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    product
}

/// A texture object over one plane of f32 pixels, made by the host: coordinates in pixels, nearest
/// filtering.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Texture(u64);

impl Texture {
    /// The pixel that contains `(x, y)`; the centre of the first one is `(0.5, 0.5)`. Outside the
    /// plane, the object's address mode gives the value.
    ///
    /// # Safety
    /// The object and its memory exist, and nothing writes them while the kernel runs.
    #[inline(always)]
    pub(crate) unsafe fn fetch(self, x: f32, y: f32) -> f32 {
        let value: f32;
        // SAFETY: as the caller promised.
        unsafe {
            asm!(
                "tex.2d.v4.f32.f32 {{{}, {}, {}, {}}}, [{}, {{{}, {}}}];",
                out(reg32) value,
                out(reg32) _,
                out(reg32) _,
                out(reg32) _,
                in(reg64) self.0,
                in(reg32) x,
                in(reg32) y,
                options(pure, readonly, nostack, preserves_flags)
            );
        }
        value
    }
}
