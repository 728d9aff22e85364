//! Questions about devices.

use std::ffi::CStr;

use super::answer::{Answer, check};
use super::sys;

/// Starts the driver, and counts the devices.
pub(in crate::gpu) fn device_count() -> Answer<u32> {
    let mut count = 0;
    // SAFETY: the pointer is to a local.
    unsafe {
        check(sys::cuInit(0))?;
        check(sys::cuDeviceGetCount(&mut count))?;
    }
    Ok(count as u32)
}

/// The newest version of CUDA that the driver knows: major and minor.
pub(in crate::gpu) fn version() -> Answer<(u32, u32)> {
    let mut version = 0;
    // SAFETY: the pointer is to a local.
    check(unsafe { sys::cuDriverGetVersion(&mut version) })?;
    Ok((version as u32 / 1000, version as u32 % 1000 / 10))
}

/// Bytes of memory of the device that is current: those that are free, and all.
pub(in crate::gpu) fn memory() -> Answer<(u64, u64)> {
    let (mut free, mut total) = (0, 0);
    // SAFETY: the pointers are to locals.
    check(unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) })?;
    Ok((free as u64, total as u64))
}

/// A device, by the driver's number for it.
#[derive(Clone, Copy, Debug)]
pub(in crate::gpu) struct Device(pub(super) sys::Device);

impl Device {
    pub(in crate::gpu) fn new(ordinal: u32) -> Answer<Self> {
        let mut device = 0;
        // SAFETY: the pointer is to a local.
        check(unsafe { sys::cuDeviceGet(&mut device, ordinal as i32) })?;
        Ok(Self(device))
    }

    pub(in crate::gpu) fn name(self) -> Answer<String> {
        let mut name = [0u8; 128];
        // SAFETY: as many bytes as the driver is told; the last one stays 0.
        check(unsafe {
            sys::cuDeviceGetName(name.as_mut_ptr().cast(), name.len() as i32 - 1, self.0)
        })?;
        let text = CStr::from_bytes_until_nul(&name).unwrap_or_default();
        Ok(text.to_string_lossy().into_owned())
    }

    /// Bytes of its memory.
    pub(in crate::gpu) fn memory(self) -> Answer<u64> {
        let mut bytes = 0;
        // SAFETY: the pointer is to a local.
        check(unsafe { sys::cuDeviceTotalMem_v2(&mut bytes, self.0) })?;
        Ok(bytes as u64)
    }

    pub(in crate::gpu) fn attribute(self, attribute: DeviceAttribute) -> Answer<u32> {
        let mut value = 0;
        // SAFETY: the pointer is to a local.
        check(unsafe { sys::cuDeviceGetAttribute(&mut value, attribute as u32, self.0) })?;
        Ok(value as u32)
    }
}

/// Numbers of `CUdevice_attribute`.
#[derive(Clone, Copy, Debug)]
pub(in crate::gpu) enum DeviceAttribute {
    MaxGridDimY = 6,
    MaxPitch = 11,
    ClockRate = 13,
    MultiprocessorCount = 16,
    Integrated = 18,
    MemoryClockRate = 36,
    GlobalMemoryBusWidth = 37,
    L2CacheSize = 38,
    ComputeCapabilityMajor = 75,
    ComputeCapabilityMinor = 76,
    MaxSharedMemoryPerBlockOptin = 97,
}
