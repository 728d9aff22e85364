//! Texture objects over pitched device memory: one plane of f32, coordinates in pixels, nearest
//! filtering. The structs have the layout of `cuda.h`.

use std::ffi::{c_int, c_uint};

/// `CUDA_RESOURCE_DESC`, up to the fields of pitched memory.
#[repr(C)]
pub(crate) struct Resource {
    kind: c_int,
    address: u64,
    format: c_int,
    channels: c_uint,
    width: usize,
    height: usize,
    pitch: usize,
}

/// `CUDA_TEXTURE_DESC`, up to the border colour.
#[repr(C)]
pub(crate) struct Description {
    address_mode: [c_int; 3],
    filter_mode: c_int,
    flags: c_uint,
    anisotropy: c_uint,
    mipmap_filter: c_int,
    mipmaps: [f32; 3],
    border: [f32; 4],
}

const PITCHED: c_int = 3;
const FLOAT: c_int = 0x20;
const CLAMP: c_int = 1;
const BORDER: c_int = 3;

/// Alignment of a device's addresses and pitches, and its largest plane, as on an H200.
pub(crate) const ALIGNMENT: u64 = 512;
pub(crate) const PITCH_ALIGNMENT: usize = 32;
pub(crate) const LIMIT: (usize, usize) = (131_072, 65_000);

/// A texture object.
pub(crate) struct Texture {
    address: u64,
    width: usize,
    height: usize,
    pitch: usize,
    /// The value outside; `None` if the edge repeats.
    outside: Option<f32>,
}

impl Texture {
    /// Makes the texture of a description; or says why the description is invalid.
    pub(crate) fn new(resource: &Resource, description: &Description) -> Result<Self, String> {
        let &Resource { kind, address, format, channels, width, height, pitch } = resource;
        let Description { address_mode: mode, filter_mode, flags, border, .. } = description;
        let known = (kind, format, channels, *filter_mode, *flags) == (PITCHED, FLOAT, 1, 0, 0);
        if !known || mode[0] != mode[1] || ![CLAMP, BORDER].contains(&mode[0]) {
            return Err(
                "the emulator has textures of one f32 channel in pitched memory, not normalised, not filtered".into()
            );
        }
        if !address.is_multiple_of(ALIGNMENT)
            || !pitch.is_multiple_of(PITCH_ALIGNMENT)
            || pitch < 4 * width
        {
            return Err(format!(
                "a texture of {width} pixels a row at {address:#x}, pitch {pitch}, is misaligned"
            ));
        }
        if width == 0 || height == 0 || width > LIMIT.0 || height > LIMIT.1 {
            return Err(format!(
                "a texture of {width}x{height} pixels; the most is {}x{}",
                LIMIT.0, LIMIT.1
            ));
        }
        let outside = (mode[0] == BORDER).then_some(border[0]);
        Ok(Self { address, width, height, pitch, outside })
    }

    /// The address of the pixel that contains `(x, y)`, or the value outside.
    pub(crate) fn at(&self, x: f32, y: f32) -> Result<usize, f32> {
        let (column, row) = (x.floor() as i64, y.floor() as i64);
        let (last_column, last_row) = (self.width as i64 - 1, self.height as i64 - 1);
        let inside = (0..=last_column).contains(&column) && (0..=last_row).contains(&row);
        match self.outside {
            Some(value) if !inside => Err(value),
            _ => {
                let (column, row) =
                    (column.clamp(0, last_column) as usize, row.clamp(0, last_row) as usize);
                Ok(self.address as usize + row * self.pitch + 4 * column)
            }
        }
    }
}
