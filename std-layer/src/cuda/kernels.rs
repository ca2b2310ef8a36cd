//! The embedded kernels: which there are, for which GPUs, and how they are found.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use gllm_kernels_core::{ElementType, QuantFormat};

use super::driver::{Context, Device};
use super::error::{Capability, CudaError};
use super::geometry::Geometry;
use super::module::{inflate, Arguments, Function, Module};
use super::stream::Stream;

macro_rules! files {
    ($($file:ident)*) => {
        /// A source file of kernels.
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(super) enum File {
            $($file),*
        }

        impl File {
            pub(super) const ALL: &'static [Self] = &[$(Self::$file),*];

            pub(super) const fn name(self) -> &'static str {
                match self {
                    $(Self::$file => stringify!($file)),*
                }
            }
        }

        /// Kernels for one compute capability.
        #[allow(unused_macros)]
        macro_rules! embedded {
            ($sm:literal, $archive:literal, $member:literal) => {
                Embedded {
                    capability: Capability($sm),
                    member: $member,
                    cubins: &[$(include_bytes!(concat!("cubin/", stringify!($file), ".sm_", $archive, ".lzma"))),*],
                }
            };
            (gfx $gfx:literal, $number:literal) => {
                Embedded {
                    capability: Capability($number),
                    member: 0,
                    cubins: &[$(
                        include_bytes!(concat!("../rocm/objects/", stringify!($file), ".gfx", $gfx, ".lzma"))
                    ),*],
                }
            };
        }
    };
}
files! { elementwise rows quant qgemv gemv grouped attention prefill sampling gemm decoder experts linear }

/// Kernels for one compute capability: they also run on later ones of the same generation; of AMD's on members of its family.
struct Embedded {
    capability: Capability,
    /// Which file of each archive is for these GPUs.
    member: usize,
    /// Archives, in the order of [`File::ALL`].
    cubins: &'static [&'static [u8]],
}

static EMBEDDED: &[Embedded] = &[
    #[cfg(feature = "cuda-turing")]
    embedded!(75, "75", 0),
    #[cfg(feature = "cuda-ampere")]
    embedded!(80, "8x", 1),
    #[cfg(feature = "cuda-ampere")]
    embedded!(86, "8x", 0),
    #[cfg(feature = "cuda-ampere")]
    embedded!(87, "8x", 2),
    #[cfg(feature = "cuda-hopper")]
    embedded!(90, "90a", 0),
    #[cfg(feature = "cuda-blackwell")]
    embedded!(100, "100", 0),
    #[cfg(feature = "cuda-blackwell")]
    embedded!(120, "120", 0),
    #[cfg(feature = "rocm")]
    embedded!(gfx "90a", 0x90a),
    #[cfg(feature = "rocm")]
    embedded!(gfx "942", 0x942),
    #[cfg(feature = "rocm")]
    embedded!(gfx "1030", 0x1030),
    #[cfg(feature = "rocm")]
    embedded!(gfx "1100", 0x1100),
    #[cfg(feature = "rocm")]
    embedded!(gfx "1200", 0x1200),
];

/// GPUs of NVIDIA's with machine code of their own, which no other one executes: Jetson Orin, which is beside a CPU with the same memory; and those that
/// multiply by `wgmma`.
const ALONE: [Capability; 2] = [Capability(87), Capability(90)];

/// The kernels for a GPU: of its generation, none newer, the newest of these; of AMD's those of its family.
fn embedded(device: &Device) -> Result<&'static Embedded, CudaError> {
    let capability = device.capability();
    let fits = |e: &&Embedded| match device.family() {
        Some(family) => e.capability == family,
        None => {
            let same = e.capability.0 / 10 == capability.0 / 10 && !e.capability.is_gfx();
            let alone = ALONE.iter().any(|&c| (e.capability == c) != (capability == c));
            same && e.capability <= capability && !alone
        }
    };
    EMBEDDED.iter().filter(fits).max_by_key(|e| e.capability).ok_or_else(|| CudaError::NoKernels {
        capability,
        embedded: EMBEDDED
            .iter()
            .map(|e| e.capability)
            .filter(|c| c.is_gfx() == capability.is_gfx())
            .collect(),
    })
}

/// The name of a kernel, in parts: an operator, and what it is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Name(pub(super) &'static str, pub(super) &'static str, pub(super) &'static str);

impl Name {
    pub(super) fn join(self) -> String {
        let parts = [self.0, self.1, self.2];
        parts.iter().filter(|p| !p.is_empty()).copied().collect::<Vec<_>>().join("_")
    }
}

/// The kernels that are loaded on a GPU.
pub(super) struct Loader {
    context: Context,
    embedded: &'static Embedded,
    modules: Mutex<HashMap<File, Module>>,
    functions: RwLock<HashMap<Name, Arc<Function>>>,
}

impl Loader {
    pub(super) fn new(context: &Context) -> Result<Self, CudaError> {
        Ok(Self {
            context: context.clone(),
            embedded: embedded(context.device())?,
            modules: Mutex::default(),
            functions: RwLock::default(),
        })
    }

    /// The GPUs that the kernels in use were compiled for.
    pub(super) fn capability(&self) -> Capability {
        self.embedded.capability
    }

    fn module(&self, file: File) -> Result<Module, CudaError> {
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(module) = modules.get(&file) {
            return Ok(module.clone());
        }
        let packed = self.embedded.cubins.get(file as usize).copied().unwrap_or_default();
        let module =
            Module::load(&self.context, &inflate(packed, self.embedded.member, self.embedded.capability)?)?;
        modules.insert(file, module.clone());
        Ok(module)
    }

    fn function(&self, file: File, name: Name) -> Result<Arc<Function>, CudaError> {
        let known = self.functions.read().unwrap_or_else(PoisonError::into_inner).get(&name).cloned();
        if let Some(function) = known {
            return Ok(function);
        }
        let function = Arc::new(self.module(file)?.function(&name.join())?);
        self.functions.write().unwrap_or_else(PoisonError::into_inner).insert(name, function.clone());
        Ok(function)
    }

    /// Loads a kernel, unless it is loaded.
    pub(super) fn load(&self, file: File, name: Name) -> Result<(), CudaError> {
        self.function(file, name).map(drop)
    }

    /// Queues a launch; the first one of a kernel loads its file.
    ///
    /// # Safety
    /// The kernel takes an `A`, whose addresses and sizes stay true until it is done.
    pub(super) unsafe fn launch<A: Arguments>(
        &self,
        (file, name): (File, Name),
        stream: &Stream,
        geometry: Geometry,
        args: &A,
    ) -> Result<(), CudaError> {
        self.context.same(stream.context())?;
        // SAFETY: the caller's contract.
        unsafe { self.function(file, name)?.launch(stream, geometry, args) }
    }
}

/// The storage types of kernels.
pub(super) const TYPES: [&str; 3] = ["f32", "f16", "bf16"];

/// The formats that have blocks.
pub(super) fn block_formats() -> impl Iterator<Item = QuantFormat> {
    QuantFormat::ALL.iter().copied().filter(|f| f.element().is_none())
}

/// How kernels are told a storage type at run time.
pub(super) const fn type_number(ty: ElementType) -> u32 {
    match ty {
        ElementType::F32 => 0,
        ElementType::F16 => 1,
        _ => 2,
    }
}

/// An embedded cubin, for tests: its file, what it was compiled for, its bytes.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct Cubin {
    pub file: &'static str,
    pub capability: Capability,
    pub bytes: Vec<u8>,
}

/// Every embedded cubin, unpacked.
#[doc(hidden)]
pub fn embedded_cubins() -> Result<Vec<Cubin>, CudaError> {
    let mut all = Vec::new();
    for &Embedded { capability, member, cubins } in EMBEDDED {
        for (file, packed) in File::ALL.iter().zip(cubins) {
            all.push(Cubin { file: file.name(), capability, bytes: inflate(packed, member, capability)? });
        }
    }
    Ok(all)
}
