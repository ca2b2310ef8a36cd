//! Which GPUs there are.

use std::fmt;
use std::future::Future;
use std::task::{Context, Poll, Waker};

use wgpu::{Backends, DeviceType, Instance, InstanceDescriptor, InstanceFlags};

use crate::backend::BackendError;

/// What a future of wgpu yields: on an operating system they are ready, or become so by being asked.
pub(super) fn wait_for<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return done;
        }
        std::thread::yield_now();
    }
}

/// A GPU, reached through Vulkan, Metal or DirectX 12, or a program that computes what a GPU would.
#[derive(Clone)]
pub struct WgpuAdapter {
    adapter: wgpu::Adapter,
    info: wgpu::AdapterInfo,
}

impl WgpuAdapter {
    /// Every adapter of this machine, in the order in which [`detect`](crate::backend::detect) would take them: discrete GPUs first, then
    /// integrated and virtual ones, software last. The same GPU may occur several times, by different interfaces.
    pub fn all() -> Vec<Self> {
        let backends = Backends::VULKAN | Backends::METAL | Backends::DX12;
        let flags = InstanceFlags::empty();
        let instance = Instance::new(InstanceDescriptor {
            backends,
            flags,
            ..InstanceDescriptor::new_without_display_handle()
        });
        let adapters = wait_for(instance.enumerate_adapters(backends));
        let mut all: Vec<_> = adapters
            .into_iter()
            .map(|adapter| {
                let info = adapter.get_info();
                Self { adapter, info }
            })
            .collect();
        all.sort_by_key(|adapter| match adapter.info.device_type {
            DeviceType::DiscreteGpu => 0,
            DeviceType::IntegratedGpu => 1,
            DeviceType::VirtualGpu => 2,
            DeviceType::Other => 3,
            DeviceType::Cpu => 4,
        });
        all
    }

    /// The name that its driver gives it.
    pub fn name(&self) -> &str {
        &self.info.name
    }

    /// The interface that it is reached by: `Vulkan`, `Metal` or `DirectX 12`.
    pub fn interface(&self) -> &'static str {
        match self.info.backend {
            wgpu::Backend::Vulkan => "Vulkan",
            wgpu::Backend::Metal => "Metal",
            wgpu::Backend::Dx12 => "DirectX 12",
            _ => "another interface",
        }
    }

    /// Whether it is a program, and no GPU: such an adapter is slower than the CPU backend, and never chosen by itself.
    pub fn is_software(&self) -> bool {
        self.info.device_type == DeviceType::Cpu
    }

    /// A device with all that it allows, and with those of these features that it has.
    pub(super) fn open(&self, features: wgpu::Features) -> Result<(wgpu::Device, wgpu::Queue), BackendError> {
        // Whatever it allows, it shall allow.
        let limits = self.adapter.limits();
        let request = self.adapter.request_device(&wgpu::DeviceDescriptor {
            label: Some("gllm"),
            required_features: self.adapter.features() & features,
            required_limits: limits,
            experimental_features: wgpu::ExperimentalFeatures::disabled(),
            memory_hints: wgpu::MemoryHints::Performance,
            trace: wgpu::Trace::Off,
        });
        wait_for(request).map_err(|e| BackendError::NoDevice(format!("{self}: {e}")))
    }
}

impl fmt::Display for WgpuAdapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}", self.name(), self.interface())?;
        if !self.info.driver.is_empty() {
            write!(f, ", driver {} {}", self.info.driver, self.info.driver_info)?;
        }
        f.write_str(if self.is_software() { ", software)" } else { ")" })
    }
}

impl fmt::Debug for WgpuAdapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WgpuAdapter({self})")
    }
}
