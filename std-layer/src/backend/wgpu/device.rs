//! A device: its memory, its shaders, and its errors.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use wgpu::{Buffer, BufferUsages, ComputePipeline, ErrorFilter, Features};

use super::adapter::{wait_for, WgpuAdapter};
use super::shaders::Shader;
use crate::backend::BackendError;

/// What crossed the bus, and how often the device was given work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes written to the device, weights and constants of operations aside.
    pub to_device: u64,
    /// Bytes read back.
    pub from_device: u64,
    /// Submissions of work.
    pub submissions: u64,
}

/// A device and what was compiled for it.
pub(super) struct Gpu {
    pub(super) adapter: WgpuAdapter,
    device: wgpu::Device,
    queue: wgpu::Queue,
    limits: wgpu::Limits,
    lost: Arc<OnceLock<String>>,
    pipelines: Mutex<HashMap<Shader, Arc<ComputePipeline>>>,
    to_device: AtomicU64,
    from_device: AtomicU64,
    submissions: AtomicU64,
}

/// Features that shaders use where an adapter has them.
pub(super) const USEFUL: Features = Features::SUBGROUP.union(Features::SHADER_F16);

/// Threads of the largest workgroup that a shader has.
pub(super) const THREADS: u32 = 256;

impl Gpu {
    /// A device whose buffers have so many bytes at most, and whose shaders use those of these features that the adapter has.
    pub(super) fn new(adapter: WgpuAdapter, largest: u64, features: Features) -> Result<Self, BackendError> {
        let (device, queue) = adapter.open(features)?;
        let lost = Arc::new(OnceLock::new());
        let told = Arc::clone(&lost);
        device.set_device_lost_callback(move |reason, message| {
            told.get_or_init(|| format!("{reason:?}: {message}"));
        });
        // What no scope catches happens after the device was lost; that is noticed by itself.
        device.on_uncaptured_error(Arc::new(|_| ()));
        let mut limits = device.limits();
        limits.max_storage_buffer_binding_size = limits.max_storage_buffer_binding_size.min(largest);
        let (threads, side) =
            (limits.max_compute_invocations_per_workgroup, limits.max_compute_workgroup_size_x);
        if threads.min(side) < THREADS {
            let what = format!("threads of a workgroup on {adapter}");
            let (need, allowed) = (THREADS.into(), threads.min(side).into());
            return Err(BackendError::Limit { what, need, allowed });
        }
        Ok(Self {
            adapter,
            device,
            queue,
            limits,
            lost,
            pipelines: Mutex::default(),
            to_device: AtomicU64::new(0),
            from_device: AtomicU64::new(0),
            submissions: AtomicU64::new(0),
        })
    }

    /// Bytes of a buffer that shaders can see.
    pub(super) fn largest(&self) -> u64 {
        self.limits.max_storage_buffer_binding_size.min(self.limits.max_buffer_size)
    }

    /// Workgroups side by side.
    pub(super) fn groups(&self) -> u32 {
        self.limits.max_compute_workgroups_per_dimension
    }

    /// Bytes of memory that a workgroup shares.
    pub(super) fn shared_bytes(&self) -> u32 {
        self.limits.max_compute_workgroup_storage_size
    }

    /// Whether shaders may compute in f16.
    pub(super) fn has_f16(&self) -> bool {
        self.device.features().contains(Features::SHADER_F16)
    }

    pub(super) fn traffic(&self) -> Traffic {
        Traffic {
            to_device: self.to_device.load(Ordering::Relaxed),
            from_device: self.from_device.load(Ordering::Relaxed),
            submissions: self.submissions.load(Ordering::Relaxed),
        }
    }

    /// Ends the device, as a driver may do.
    pub(super) fn destroy(&self) {
        self.device.destroy();
        let _ = self.device.poll(wgpu::PollType::Poll);
    }

    /// An error if the device is lost.
    fn alive(&self) -> Result<(), BackendError> {
        self.lost.get().map_or(Ok(()), |why| Err(BackendError::Lost(why.clone())))
    }

    /// Does something with the device, and says what the device says to it.
    pub(super) fn guarded<T>(
        &self,
        (what, bytes): (&str, u64),
        work: impl FnOnce(&wgpu::Device, &wgpu::Queue) -> T,
    ) -> Result<T, BackendError> {
        self.alive()?;
        let filters = [ErrorFilter::Validation, ErrorFilter::OutOfMemory, ErrorFilter::Internal];
        let scopes = filters.map(|filter| self.device.push_error_scope(filter));
        let result = work(&self.device, &self.queue);
        let mut problem = None;
        // The last one that was begun ends first.
        for scope in scopes.into_iter().rev() {
            problem = wait_for(scope.pop()).or(problem);
        }
        self.alive()?;
        match problem {
            None => Ok(result),
            Some(wgpu::Error::OutOfMemory { .. }) => {
                Err(BackendError::OutOfMemory { what: what.to_owned(), bytes })
            }
            Some(e) => Err(BackendError::Device(format!("{what}: {e}"))),
        }
    }

    /// Memory; it is zero.
    pub(super) fn buffer(&self, what: &str, bytes: u64, usage: BufferUsages) -> Result<Buffer, BackendError> {
        let allowed =
            if usage.contains(BufferUsages::STORAGE) { self.largest() } else { self.limits.max_buffer_size };
        if bytes > allowed {
            return Err(BackendError::Limit { what: format!("bytes of {what}"), need: bytes, allowed });
        }
        let descriptor = wgpu::BufferDescriptor {
            label: Some(what),
            size: bytes.max(16),
            usage,
            mapped_at_creation: false,
        };
        self.guarded((what, bytes), |device, _| device.create_buffer(&descriptor))
    }

    /// Memory that shaders read and write, and copies do, too.
    pub(super) fn storage(&self, what: &str, bytes: u64) -> Result<Buffer, BackendError> {
        let usage = BufferUsages::STORAGE | BufferUsages::COPY_DST | BufferUsages::COPY_SRC;
        self.buffer(what, bytes, usage)
    }

    /// Memory with these words, written now: for what stays as it is.
    pub(super) fn constant(
        &self,
        what: &str,
        words: &[u32],
        usage: BufferUsages,
    ) -> Result<Buffer, BackendError> {
        let buffer = self.buffer(what, size_of_val(words) as u64, usage | BufferUsages::COPY_DST)?;
        self.guarded((what, size_of_val(words) as u64), |_, queue| {
            queue.write_buffer(&buffer, 0, &bytes(words));
        })?;
        Ok(buffer)
    }

    /// Words that a step needs.
    pub(super) fn write(&self, buffer: &Buffer, at: u64, words: &[u32]) -> Result<(), BackendError> {
        self.to_device.fetch_add(size_of_val(words) as u64, Ordering::Relaxed);
        self.guarded(("what a step needs", 0), |_, queue| queue.write_buffer(buffer, at, &bytes(words)))
    }

    /// Sends off what was written, so that the memory in between is free.
    pub(super) fn flush_writes(&self) -> Result<(), BackendError> {
        self.guarded(("weights", 0), |_, queue| queue.submit([]))?;
        self.wait()
    }

    /// Waits until everything is done.
    pub(super) fn wait(&self) -> Result<(), BackendError> {
        let polled =
            self.guarded(("a step", 0), |device, _| device.poll(wgpu::PollType::wait_indefinitely()))?;
        polled.map_err(|e| BackendError::Device(format!("waiting: {e}"))).map(|_| ())
    }

    pub(super) fn encoder(&self) -> Result<wgpu::CommandEncoder, BackendError> {
        self.guarded(("a step", 0), |device, _| {
            device.create_command_encoder(&wgpu::CommandEncoderDescriptor { label: Some("step") })
        })
    }

    /// Gives the device what was encoded.
    pub(super) fn submit(&self, encoder: wgpu::CommandEncoder) -> Result<(), BackendError> {
        self.submissions.fetch_add(1, Ordering::Relaxed);
        self.guarded(("a step", 0), |_, queue| {
            queue.submit([encoder.finish()]);
        })
    }

    /// The words of a buffer that can be mapped, when all work is done.
    pub(super) fn read(&self, buffer: &Buffer, words: u64) -> Result<Vec<u32>, BackendError> {
        self.from_device.fetch_add(4 * words, Ordering::Relaxed);
        let mapped = Arc::new(OnceLock::new());
        let told = Arc::clone(&mapped);
        let range = 0..4 * words;
        let polled = self.guarded(("results", 4 * words), |device, _| {
            buffer.map_async(wgpu::MapMode::Read, range.clone(), move |result| {
                told.get_or_init(|| result);
            });
            device.poll(wgpu::PollType::wait_indefinitely())
        })?;
        self.alive()?;
        polled.map_err(|e| BackendError::Device(format!("results: {e}")))?;
        match mapped.get() {
            Some(Ok(())) => {}
            other => return Err(BackendError::Device(format!("results cannot be read: {other:?}"))),
        }
        let view =
            buffer.get_mapped_range(range).map_err(|e| BackendError::Device(format!("results: {e}")))?;
        let all = view.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        drop(view);
        buffer.unmap();
        Ok(all)
    }

    /// A shader, compiled for this device.
    pub(super) fn pipeline(&self, shader: Shader) -> Result<Arc<ComputePipeline>, BackendError> {
        let mut all = self.pipelines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(there) = all.get(&shader) {
            return Ok(Arc::clone(there));
        }
        let subgroups = self.device.features().contains(Features::SUBGROUP);
        let text = shader.text(subgroups).ok_or_else(|| {
            BackendError::Unsupported(format!("{shader:?}: there is no shader that decodes the format"))
        })?;
        let what = format!("{shader:?}");
        let pipeline = self.guarded((&what, 0), |device, _| {
            let source = wgpu::ShaderModuleDescriptor {
                label: Some(&what),
                source: wgpu::ShaderSource::Wgsl(text.into()),
            };
            let checks = wgpu::ShaderRuntimeChecks { force_loop_bounding: false, ..Default::default() };
            // SAFETY: every loop of every shader counts up or down to a bound that does not change.
            let module = unsafe { device.create_shader_module_trusted(source, checks) };
            device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: Some(&what),
                layout: None,
                module: &module,
                entry_point: Some("main"),
                // Every shader writes what it reads of it.
                compilation_options: wgpu::PipelineCompilationOptions {
                    zero_initialize_workgroup_memory: false,
                    ..Default::default()
                },
                cache: None,
            })
        })?;
        Ok(Arc::clone(all.entry(shader).or_insert(Arc::new(pipeline))))
    }

    /// Buffers for a shader: those with their numbers, and constants.
    pub(super) fn bind(
        &self,
        pipeline: &ComputePipeline,
        buffers: &[(u32, &Buffer)],
        (number, constants): (u32, &[u32]),
    ) -> Result<wgpu::BindGroup, BackendError> {
        // Uniform structures are multiples of 16 bytes.
        let mut words = constants.to_vec();
        words.resize(words.len().next_multiple_of(4), 0);
        let uniform = self.constant("constants of an operation", &words, BufferUsages::UNIFORM)?;
        let all = buffers.iter().copied().chain([(number, &uniform)]);
        let entries: Vec<_> = all
            .map(|(binding, buffer)| wgpu::BindGroupEntry { binding, resource: buffer.as_entire_binding() })
            .collect();
        self.guarded(("an operation", 0), |device, _| {
            device.create_bind_group(&wgpu::BindGroupDescriptor {
                label: None,
                layout: &pipeline.get_bind_group_layout(0),
                entries: &entries,
            })
        })
    }
}

/// Words as the device has them.
fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}
