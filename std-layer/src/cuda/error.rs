//! What can go wrong on the way to a GPU, with the numbers.

use std::fmt;

use gllm_kernels_core::KernelError;

/// A CUDA version: 13000 is 13.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CudaVersion(pub i32);

impl fmt::Display for CudaVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0 / 1000, self.0 % 1000 / 10)
    }
}

/// A compute capability: 90 is 9.0. Of GPUs of AMD's the number that their maker gives them, in base 16: 0x90a is gfx90a.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Capability(pub u32);

impl Capability {
    /// Whether it is one of AMD's.
    pub const fn is_gfx(self) -> bool {
        self.0 >= 0x600
    }

    /// Whether `mma.m16n8k16` multiplies tiles of f16 and of bf16.
    pub(super) const fn multiplies_tiles(self) -> bool {
        self.0 >= 80 && !self.is_gfx()
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_gfx() {
            return write!(f, "gfx{:x}", self.0);
        }
        write!(f, "{}.{}", self.0 / 10, self.0 % 10)
    }
}

/// A result code of the driver, with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverCode {
    /// The number.
    pub code: i32,
    /// `CUDA_ERROR_..`, as the driver calls it.
    pub name: String,
}

impl fmt::Display for DriverCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.code)
    }
}

/// Why something could not be done on a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CudaError {
    /// The driver's library cannot be opened: most likely no driver is installed.
    NoDriver {
        /// What was opened.
        library: String,
        /// What the system says.
        why: String,
    },
    /// ROCm's library cannot be opened: most likely it is not installed.
    NoRuntime {
        /// What was opened.
        library: String,
        /// What the system says.
        why: String,
    },
    /// The library lacks a function, so it is not a CUDA driver, or an old one.
    MissingFunction {
        /// Its name.
        name: &'static str,
    },
    /// The driver is older than the kernels.
    DriverTooOld {
        /// The newest CUDA version that the driver knows.
        have: CudaVersion,
        /// The oldest version that the kernels run with.
        need: CudaVersion,
        /// The first driver that supports it: its major version.
        driver: u32,
    },
    /// There is a driver, but no GPU.
    NoDevice,
    /// There is no GPU with this number.
    NoSuchDevice {
        /// The number.
        index: usize,
        /// How many there are.
        count: usize,
    },
    /// No kernels are embedded for GPUs of this compute capability.
    NoKernels {
        /// The GPU's.
        capability: Capability,
        /// Those that this build has kernels for.
        embedded: Vec<Capability>,
    },
    /// The kernels embedded for this compute capability are damaged.
    DamagedKernels {
        /// The compute capability.
        capability: Capability,
    },
    /// The GPU's memory, or page-locked memory of the host, is used up.
    OutOfMemory {
        /// Bytes that were asked for.
        asked: usize,
        /// Bytes free on the GPU; of the host's memory that is not known.
        free: Option<usize>,
    },
    /// A kernel could not be started, or failed while it ran.
    Launch {
        /// The kernel; where several were under way, the last one started.
        kernel: String,
        /// What the driver says.
        why: DriverCode,
    },
    /// A kernel was asked for more than the GPU has of something.
    Geometry {
        /// The kernel.
        kernel: String,
        /// Of what.
        what: &'static str,
        /// How much was asked for.
        asked: usize,
        /// How much there is.
        limit: usize,
    },
    /// A buffer has too few elements, or where sizes must agree another number of them.
    WrongSize {
        /// Name of the argument.
        arg: &'static str,
        /// Elements needed.
        need: usize,
        /// Elements given.
        got: usize,
    },
    /// A buffer does not start where kernels need it to.
    Misaligned {
        /// Name of the argument.
        arg: &'static str,
        /// Bytes that its address must be a multiple of.
        align: usize,
    },
    /// Two things that belong to different contexts were used together.
    OtherContext,
    /// A copy that nobody could wait for: this thread records ([`Stream::capture`](super::Stream::capture)).
    Recording,
    /// A shape or parameter that the operator cannot have.
    Kernel(KernelError),
    /// Any other call of the driver failed.
    Driver {
        /// The function.
        call: &'static str,
        /// What the driver says.
        why: DriverCode,
    },
}

impl fmt::Display for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDriver { library, why } => {
                write!(f, "no CUDA driver: {library} cannot be opened ({why}); install NVIDIA's driver")
            }
            Self::NoRuntime { library, why } => {
                write!(f, "no ROCm: {library} cannot be opened ({why}); install ROCm's HSA runtime (hsa-rocr)")
            }
            Self::MissingFunction { name } => {
                write!(f, "the driver has no function {name}: update it")
            }
            Self::DriverTooOld { have, need, driver } => write!(
                f,
                "the CUDA driver supports CUDA {have}, the kernels need {need}: install NVIDIA's driver {driver} or later"
            ),
            Self::NoDevice => write!(f, "the driver finds no GPU"),
            Self::NoSuchDevice { index, count } => {
                write!(f, "there is no GPU {index}: there are {count}, counted from 0")
            }
            Self::NoKernels { capability, embedded } => {
                write!(f, "no kernels for compute capability {capability}; this build has some for")?;
                for (i, c) in embedded.iter().enumerate() {
                    write!(f, "{} {c}", if i == 0 { "" } else { "," })?;
                }
                if embedded.is_empty() {
                    write!(f, " none")?;
                }
                write!(f, ": enable the cargo feature of its family")
            }
            Self::DamagedKernels { capability } => {
                write!(f, "the kernels embedded for compute capability {capability} are damaged")
            }
            Self::OutOfMemory { asked, free: Some(free) } => {
                write!(f, "out of GPU memory: {asked} bytes asked for, {free} free")
            }
            Self::OutOfMemory { asked, free: None } => {
                write!(f, "out of page-locked host memory: {asked} bytes asked for")
            }
            Self::Launch { kernel, why } => write!(f, "kernel {kernel} failed: {why}"),
            Self::Geometry { kernel, what, asked, limit } => {
                write!(f, "kernel {kernel} needs {asked} {what}, the GPU has {limit}")
            }
            Self::WrongSize { arg, need, got } => {
                write!(f, "`{arg}` has {got} elements, needs {need}")
            }
            Self::Misaligned { arg, align } => {
                write!(f, "`{arg}` must start at a multiple of {align} bytes")
            }
            Self::OtherContext => write!(f, "buffers, streams and kernels belong to different contexts"),
            Self::Recording => write!(f, "a recording cannot have a copy that the host waits for"),
            Self::Kernel(error) => error.fmt(f),
            Self::Driver { call, why } => write!(f, "{call} failed: {why}"),
        }
    }
}

impl std::error::Error for CudaError {}

impl From<KernelError> for CudaError {
    fn from(error: KernelError) -> Self {
        Self::Kernel(error)
    }
}
