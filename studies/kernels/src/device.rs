//! The device layer of `gpu-kernels`, and what studies alone need of the GPU.

#[path = "../../../gpu-kernels/src/device/mod.rs"]
mod shared;

pub(crate) use shared::*;

/// `a * b`, of which only the 24 low bits count: the product's 32 low bits.
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

/// A texture object over one plane of f32 pixels, made by the host: not normalised, not filtered.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Texture(u64);

impl Texture {
    /// The pixel in which `(x, y)` lies: the middle of the first one is `(0.5, 0.5)`. Outside the
    /// plane, what the object's address mode says.
    ///
    /// # Safety
    /// The object and its memory are there, and nothing writes them while the kernel runs.
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
