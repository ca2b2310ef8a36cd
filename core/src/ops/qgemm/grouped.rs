//! Many products in one call, each with weights of its own.

use super::{Precision, QgemmPlan, QuantWeights};
use crate::dispatch::Kernels;
use crate::element::Element;
use crate::error::KernelError;
use crate::ops::gemm::Activation;
use crate::scratch::{Scratch, ScratchReq};
use crate::view::{MatMut, MatRef};

/// One product of [`Kernels::qgemm_grouped`]: `Y = X W^T`; of a mixture of experts one expert, with the tokens that chose
/// it.
#[derive(Debug)]
pub struct QgemmGroup<'a, E> {
    /// `n x k`.
    pub w: QuantWeights<'a>,
    /// `m x k`; there may be no rows.
    pub x: MatRef<'a, E>,
    /// `m x n`.
    pub y: MatMut<'a, f32>,
}

impl<E: Element> QgemmGroup<'_, E> {
    /// The plan that [`Kernels::qgemm_grouped`] follows.
    ///
    /// # Errors
    /// As [`Kernels::qgemm_plan`].
    pub fn plan(
        &self,
        kernels: &Kernels<E>,
        precision: Precision,
        activation: Option<Activation>,
    ) -> Result<QgemmPlan<E>, KernelError> {
        let (w, m) = (self.w, self.x.rows());
        let plan = kernels.qgemm_plan(w.format(), m, w.rows(), w.cols(), precision)?;
        Ok(activation.into_iter().fold(plan, QgemmPlan::activation))
    }
}

impl<E: Element> Kernels<E> {
    /// Scratch memory for [`qgemm_grouped`](Self::qgemm_grouped).
    ///
    /// # Errors
    /// As [`qgemm_plan`](Self::qgemm_plan).
    pub fn qgemm_grouped_scratch(
        &self,
        groups: &[QgemmGroup<'_, E>],
        precision: Precision,
    ) -> Result<ScratchReq, KernelError> {
        let mut most = ScratchReq::EMPTY;
        for group in groups {
            let need = group.plan(self, precision, None)?.scratch()?;
            most = if need.size() > most.size() { need } else { most };
        }
        Ok(most)
    }

    /// [`QgemmPlan::run`] for each group: bit for bit the same. Groups may differ in everything but the type of their
    /// activations.
    ///
    /// # Errors
    /// As there; groups before the one that is refused have been computed.
    pub fn qgemm_grouped(
        &self,
        groups: &mut [QgemmGroup<'_, E>],
        precision: Precision,
        activation: Option<Activation>,
        mut scratch: Scratch<'_>,
    ) -> Result<(), KernelError> {
        let size = self.qgemm_grouped_scratch(groups, precision)?.size();
        let memory = scratch.take::<u8>(size)?;
        for group in groups {
            let plan = group.plan(self, precision, activation)?;
            plan.run(group.y.reborrow(), group.w, group.x, None, Scratch::new(memory))?;
        }
        Ok(())
    }
}
