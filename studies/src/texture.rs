//! Texture objects: pixels read through the texture units.
//!
//! apron defines the driver's symbols once for a program, so its list also has the two functions
//! called here: `host/src/gpu/driver/sys.rs`.

use apron::gpu::{Gpu, Stream};
use apron::{Error, Result};
use cust::sys;
use study_kernels::border;
use study_kernels::frame::Frame;

/// The texture objects that a plan's work uses. An object is an address and a rule. It stays usable
/// while the memory at that address has the same layout, whoever owns the memory.
#[derive(Debug, Default)]
pub(crate) struct Textures {
    made: Vec<(Key, sys::CUtexObject)>,
    gpu: Option<Gpu>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Key {
    pointer: u64,
    width: usize,
    height: usize,
    pitch: usize,
    border: u32,
    /// The bits of the border's value.
    outside: u32,
}

/// The most texture objects that a plan keeps.
const LIMIT: usize = 256;

impl Textures {
    /// A texture of the frame's first source plane. Under CONSTANT, the border's value lies outside
    /// it; otherwise the edge repeats.
    pub(crate) fn of(
        &mut self,
        gpu: &Gpu,
        frame: &Frame,
        stream: &Stream,
    ) -> Result<sys::CUtexObject> {
        let key = Key {
            pointer: frame.src as u64,
            width: frame.width as usize,
            height: frame.height as usize,
            pitch: 4 * frame.src_stride,
            border: frame.border,
            outside: frame.border_value.to_bits(),
        };
        if let Some(&(_, object)) = self.made.iter().find(|(known, _)| *known == key) {
            return Ok(object);
        }
        if self.made.len() >= LIMIT {
            // Work in flight may still use the objects.
            stream.synchronize()?;
            *self = Self::default();
        }
        gpu.make_current()?;
        let object = create(&key)?;
        self.made.push((key, object));
        self.gpu = Some(gpu.clone());
        Ok(object)
    }
}

fn create(key: &Key) -> Result<sys::CUtexObject> {
    let mut resource = sys::CUDA_RESOURCE_DESC {
        resType: sys::CUresourcetype::CU_RESOURCE_TYPE_PITCH2D,
        res: sys::CUDA_RESOURCE_DESC_st__bindgen_ty_1 {
            reserved: sys::CUDA_RESOURCE_DESC_st__bindgen_ty_1__bindgen_ty_5 { reserved: [0; 32] },
        },
        flags: 0,
    };
    resource.res.pitch2D = sys::CUDA_RESOURCE_DESC_st__bindgen_ty_1__bindgen_ty_4 {
        devPtr: key.pointer,
        format: sys::CUarray_format::CU_AD_FORMAT_FLOAT,
        numChannels: 1,
        width: key.width,
        height: key.height,
        pitchInBytes: key.pitch,
    };
    let mode = if key.border == border::CONSTANT {
        sys::CUaddress_mode::CU_TR_ADDRESS_MODE_BORDER
    } else {
        sys::CUaddress_mode::CU_TR_ADDRESS_MODE_CLAMP
    };
    let texture = sys::CUDA_TEXTURE_DESC {
        addressMode: [mode; 3],
        filterMode: sys::CUfilter_mode::CU_TR_FILTER_MODE_POINT,
        flags: 0,
        maxAnisotropy: 0,
        mipmapFilterMode: sys::CUfilter_mode::CU_TR_FILTER_MODE_POINT,
        mipmapLevelBias: 0.0,
        minMipmapLevelClamp: 0.0,
        maxMipmapLevelClamp: 0.0,
        borderColor: [f32::from_bits(key.outside); 4],
        reserved: [0; 12],
    };
    let mut object = 0;
    // SAFETY: both descriptions are complete and outlive the call; the driver checks their
    // contents.
    match unsafe { sys::cuTexObjectCreate(&mut object, &resource, &texture, std::ptr::null()) } {
        sys::CUresult::CUDA_SUCCESS => Ok(object),
        error => Err(Error::Driver { call: "creating a texture", message: format!("{error:?}") }),
    }
}

impl Drop for Textures {
    fn drop(&mut self) {
        // Nobody can receive an error here; the next call reports it.
        if self.gpu.as_ref().is_some_and(|gpu| gpu.make_current().is_ok()) {
            for (_, object) in self.made.drain(..) {
                // SAFETY: made by `create`; the owner has waited until the device finished all work
                // that uses it.
                let _ = unsafe { sys::cuTexObjectDestroy(object) };
            }
        }
    }
}
