//! DLPack, by which array libraries exchange arrays. The structures are those of `dlpack.h`,
//! versions 0.8, 1.0 and, for [`Exchange`], 1.3.

use std::any::Any;
use std::ffi::{CStr, c_int, c_void};
use std::sync::Arc;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::number::NumberType;

/// The device types of `dlpack.h` that this module handles.
pub(crate) const CUDA: i32 = 2;
pub(crate) const CUDA_MANAGED: i32 = 13;

const PLAIN: &CStr = c"dltensor";
const PLAIN_USED: &CStr = c"used_dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";
const VERSIONED_USED: &CStr = c"used_dltensor_versioned";
const EXCHANGE: &CStr = c"dlpack_exchange_api";

/// Bit of `flags`: the consumer may not write.
const READ_ONLY: u64 = 1;

#[repr(C)]
#[derive(Clone, Copy)]
struct Device {
    kind: i32,
    id: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Type {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device: Device,
    ndim: i32,
    dtype: Type,
    shape: *mut i64,
    /// In elements; null means C's order.
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct Managed {
    tensor: Tensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Self)>,
}

#[repr(C)]
struct ManagedVersioned {
    major: u32,
    minor: u32,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Self)>,
    flags: u64,
    tensor: Tensor,
}

/// An array in DLPack's terms.
pub(crate) struct Array {
    pub(crate) owner: Arc<dyn Any + Send + Sync>,
    pub(crate) address: u64,
    /// The device's type and number.
    pub(crate) device: (i32, i32),
    pub(crate) number: NumberType,
    pub(crate) shape: Vec<i64>,
    /// In elements.
    pub(crate) strides: Vec<i64>,
    pub(crate) readonly: bool,
}

/// The owner of an exported tensor's data: the memory, and the shape and strides that the tensor
/// points to.
struct Context {
    _owner: Arc<dyn Any + Send + Sync>,
    shape: Vec<i64>,
    strides: Vec<i64>,
}

impl Array {
    /// A capsule: the versioned form for a library that knows DLPack 1.0, otherwise the older form.
    ///
    /// # Errors
    /// `BufferError` if the array is read-only, which the older form cannot express.
    pub(crate) fn export(self, py: Python<'_>, versioned: bool) -> PyResult<Bound<'_, PyAny>> {
        if self.readonly && !versioned {
            return Err(PyBufferError::new_err(
                "the array is read-only: ask with max_version=(1, 0)",
            ));
        }
        let (code, bits, lanes) = self.number.to_dlpack();
        let mut context =
            Box::new(Context { _owner: self.owner, shape: self.shape, strides: self.strides });
        let tensor = Tensor {
            data: self.address as *mut c_void,
            device: Device { kind: self.device.0, id: self.device.1 },
            ndim: context.shape.len() as i32,
            dtype: Type { code, bits, lanes },
            shape: context.shape.as_mut_ptr(),
            strides: context.strides.as_mut_ptr(),
            byte_offset: 0,
        };
        let context = Box::into_raw(context).cast();
        if versioned {
            let flags = if self.readonly { READ_ONLY } else { 0 };
            let deleter = Some(delete_versioned as unsafe extern "C" fn(*mut ManagedVersioned));
            let managed =
                Box::new(ManagedVersioned { major: 1, minor: 0, context, deleter, flags, tensor });
            capsule(py, Box::into_raw(managed).cast(), VERSIONED, drop_versioned)
        } else {
            let deleter = Some(delete as unsafe extern "C" fn(*mut Managed));
            capsule(
                py,
                Box::into_raw(Box::new(Managed { tensor, context, deleter })).cast(),
                PLAIN,
                drop_plain,
            )
        }
    }

    /// Takes over another library's capsule.
    ///
    /// # Errors
    /// `BufferError` if it is not a DLPack capsule, or was taken already; `TypeError` for a type
    /// that NumPy does not have.
    pub(crate) fn import(capsule: &Bound<'_, PyCapsule>) -> PyResult<Self> {
        let pointer = capsule.as_ptr();
        // SAFETY: the pointer is a capsule, and the names are static. By the standard, a capsule
        // with one of these names holds the structure. The structure stays alive until its deleter
        // is called, by the code that renamed the capsule: this function. Its shape and strides
        // have `ndim` elements.
        unsafe {
            let (tensor, readonly, owner): (*const Tensor, bool, Arc<dyn Any + Send + Sync>) =
                if ffi::PyCapsule_IsValid(pointer, VERSIONED.as_ptr()) == 1 {
                    let managed = ffi::PyCapsule_GetPointer(pointer, VERSIONED.as_ptr())
                        .cast::<ManagedVersioned>();
                    if (*managed).major != 1 {
                        let message = format!(
                            "DLPack {}.{}: 0.8 or 1.x is needed",
                            (*managed).major,
                            (*managed).minor
                        );
                        return Err(PyBufferError::new_err(message));
                    }
                    ffi::PyCapsule_SetName(pointer, VERSIONED_USED.as_ptr());
                    (
                        &raw const (*managed).tensor,
                        (*managed).flags & READ_ONLY != 0,
                        Arc::new(TakenVersioned(managed)),
                    )
                } else if ffi::PyCapsule_IsValid(pointer, PLAIN.as_ptr()) == 1 {
                    let managed =
                        ffi::PyCapsule_GetPointer(pointer, PLAIN.as_ptr()).cast::<Managed>();
                    ffi::PyCapsule_SetName(pointer, PLAIN_USED.as_ptr());
                    (&raw const (*managed).tensor, false, Arc::new(Taken(managed)))
                } else {
                    return Err(PyBufferError::new_err(
                        "not a DLPack capsule, or one whose array was taken already",
                    ));
                };
            let tensor = &*tensor;
            let Type { code, bits, lanes } = tensor.dtype;
            let number = NumberType::from_dlpack(code, bits, lanes)?;
            let dims = tensor.ndim as usize;
            let numbers =
                |numbers: *const i64| (0..dims).map(|at| *numbers.add(at)).collect::<Vec<_>>();
            let shape = if dims == 0 { Vec::new() } else { numbers(tensor.shape) };
            let strides =
                if tensor.strides.is_null() { in_order(&shape) } else { numbers(tensor.strides) };
            Ok(Self {
                owner,
                address: tensor.data as u64 + tensor.byte_offset,
                device: (tensor.device.kind, tensor.device.id),
                number,
                shape,
                strides,
                readonly,
            })
        }
    }
}

/// What a library's arrays have that describes them without Python: `DLPackExchangeAPI`.
#[repr(C)]
struct Table {
    major: u32,
    minor: u32,
    /// An older table, and functions that own what they return.
    others: [*const c_void; 4],
    describe: Option<unsafe extern "C" fn(*mut ffi::PyObject, *mut Tensor) -> c_int>,
    stream: Option<unsafe extern "C" fn(i32, i32, *mut *mut c_void) -> c_int>,
}

/// The table of a library's arrays, whose type has it as an attribute.
pub(crate) struct Exchange<'py> {
    table: &'static Table,
    capsule: Bound<'py, PyAny>,
}

/// An array as its library describes it, for as long as it lives.
pub(crate) struct Lent {
    pub(crate) address: u64,
    /// The device's type and number.
    pub(crate) device: (i32, i32),
    pub(crate) number: NumberType,
    pub(crate) shape: Vec<usize>,
    /// In bytes.
    pub(crate) strides: Vec<i64>,
}

impl<'py> Exchange<'py> {
    /// The table of an array's library, if it has one.
    pub(crate) fn of(array: &Bound<'py, PyAny>) -> Option<Self> {
        let capsule = Self::attribute(array)?;
        // SAFETY: the pointer is an object, and the name is static. By the standard, a capsule of
        // this name holds a table that lives as long as the process.
        let table = unsafe {
            if ffi::PyCapsule_IsValid(capsule.as_ptr(), EXCHANGE.as_ptr()) != 1 {
                return None;
            }
            &*ffi::PyCapsule_GetPointer(capsule.as_ptr(), EXCHANGE.as_ptr()).cast::<Table>()
        };
        (table.major == 1).then_some(Self { table, capsule })
    }

    fn attribute(array: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
        array.get_type().getattr(intern!(array.py(), "__dlpack_c_exchange_api__")).ok()
    }

    /// One of the library's arrays; `None` for others, and where it cannot be described.
    pub(crate) fn lent(&self, array: &Bound<'py, PyAny>) -> Option<Lent> {
        if !Self::attribute(array)?.is(&self.capsule) {
            return None;
        }
        let describe = self.table.describe?;
        let mut tensor = std::mem::MaybeUninit::<Tensor>::uninit();
        // SAFETY: the array's type has this table. The function fills the structure, or fails with
        // an exception set. Shape and strides have `ndim` elements, and the array holds them.
        unsafe {
            if describe(array.as_ptr(), tensor.as_mut_ptr()) != 0 {
                PyErr::take(array.py());
                return None;
            }
            let tensor = tensor.assume_init();
            let Type { code, bits, lanes } = tensor.dtype;
            let dims = tensor.ndim as usize;
            if dims == 0 || tensor.strides.is_null() {
                return None;
            }
            let numbers = |numbers: *const i64| std::slice::from_raw_parts(numbers, dims).iter();
            let bytes = i64::from(bits / 8);
            Some(Lent {
                address: tensor.data as u64 + tensor.byte_offset,
                device: (tensor.device.kind, tensor.device.id),
                number: NumberType::from_dlpack(code, bits, lanes).ok()?,
                shape: numbers(tensor.shape).map(|&extent| extent as usize).collect(),
                strides: numbers(tensor.strides).map(|stride| bytes * stride).collect(),
            })
        }
    }

    /// The handle of the library's current stream on a device.
    pub(crate) fn stream(&self, py: Python<'_>, (kind, id): (i32, i32)) -> Option<u64> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the function sets the handle, or fails with an exception set.
        if unsafe { self.table.stream?(kind, id, &mut handle) } == 0 {
            return Some(handle as u64);
        }
        PyErr::take(py);
        None
    }
}

/// The strides of C's order, in elements.
fn in_order(shape: &[i64]) -> Vec<i64> {
    let mut strides = vec![1; shape.len()];
    for at in (1..shape.len()).rev() {
        strides[at - 1] = strides[at] * shape[at];
    }
    strides
}

/// A tensor of the older form that was taken over.
struct Taken(*mut Managed);

/// A tensor of the versioned form that was taken over.
struct TakenVersioned(*mut ManagedVersioned);

// SAFETY: by the standard, any thread may call the deleter. Nothing else uses the pointer.
unsafe impl Send for Taken {}
// SAFETY: likewise.
unsafe impl Sync for Taken {}
// SAFETY: likewise.
unsafe impl Send for TakenVersioned {}
// SAFETY: likewise.
unsafe impl Sync for TakenVersioned {}

impl Drop for Taken {
    fn drop(&mut self) {
        // SAFETY: the tensor was taken over, so this is the one call of its deleter. Libraries'
        // deleters may need Python's lock.
        Python::attach(|_| unsafe {
            if let Some(deleter) = (*self.0).deleter {
                deleter(self.0);
            }
        });
    }
}

impl Drop for TakenVersioned {
    fn drop(&mut self) {
        // SAFETY: as above.
        Python::attach(|_| unsafe {
            if let Some(deleter) = (*self.0).deleter {
                deleter(self.0);
            }
        });
    }
}

fn capsule<'py>(
    py: Python<'py>,
    managed: *mut c_void,
    name: &'static CStr,
    destructor: unsafe extern "C" fn(*mut ffi::PyObject),
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the name is static, and the destructor knows the pointer's type. The call returns a
    // new reference, or null with an exception set.
    unsafe {
        Bound::from_owned_ptr_or_err(
            py,
            ffi::PyCapsule_New(managed, name.as_ptr(), Some(destructor)),
        )
    }
}

unsafe extern "C" fn delete(managed: *mut Managed) {
    // SAFETY: a consumer calls this once, with a pointer that `export` made.
    unsafe { drop(Box::from_raw(Box::from_raw(managed).context.cast::<Context>())) }
}

unsafe extern "C" fn delete_versioned(managed: *mut ManagedVersioned) {
    // SAFETY: as above.
    unsafe { drop(Box::from_raw(Box::from_raw(managed).context.cast::<Context>())) }
}

/// The destructor of a capsule that nobody may have taken.
unsafe extern "C" fn drop_plain(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls this with the capsule. A capsule that still has its first name was not
    // taken.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, PLAIN.as_ptr()) == 1 {
            delete(ffi::PyCapsule_GetPointer(capsule, PLAIN.as_ptr()).cast());
        }
    }
}

unsafe extern "C" fn drop_versioned(capsule: *mut ffi::PyObject) {
    // SAFETY: as above.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, VERSIONED.as_ptr()) == 1 {
            delete_versioned(ffi::PyCapsule_GetPointer(capsule, VERSIONED.as_ptr()).cast());
        }
    }
}
