//! The order in which kernels prefetch matrices that they read once.

use crate::caps::Prefetcher;
use crate::element::Operand;
use crate::ops::ahead::Order;
use crate::table::Kernels;

impl<E: Operand> Kernels<E> {
    /// The order for a `rows x cols` matrix that is multiplied with a vector. A matrix of f32 that is in a cache is read faster
    /// without prefetches. It counts as being there if it fits L3, where the hardware prefetcher crosses pages, and otherwise
    /// if it fits a core's share of L3.
    pub(crate) fn order_for_vector(&self, rows: usize, cols: usize) -> Order {
        let bytes = rows.saturating_mul(cols).saturating_mul(size_of::<E>());
        let near = match self.caps().prefetcher() {
            Prefetcher::Sequential(_) => self.caps().caches().l3,
            Prefetcher::PerPage => self.caps().caches().share(),
        };
        if size_of::<E>() == size_of::<f32>() && bytes <= near {
            return Order::Off;
        }
        self.order(rows, cols)
    }

    /// The order for a `rows x cols` matrix.
    pub(crate) fn order(&self, rows: usize, cols: usize) -> Order {
        self.order_of(rows.saturating_mul(cols).saturating_mul(size_of::<E>()))
    }

    /// The order for a matrix of `bytes` bytes.
    pub(crate) fn order_of(&self, bytes: usize) -> Order {
        match self.caps().prefetcher() {
            _ if bytes <= self.caps().caches().l2 => Order::Off,
            Prefetcher::Sequential(_) => Order::Sequential,
            Prefetcher::PerPage => Order::SideBySide,
        }
    }
}
