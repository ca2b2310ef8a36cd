//! The parts of GPU backends that do not depend on a driver: geometry of launches, checks of arguments, planning of the arena.

mod arena;
pub(crate) mod check;
pub(crate) mod geometry;

pub(crate) use arena::{Access, Layout, Plan};
