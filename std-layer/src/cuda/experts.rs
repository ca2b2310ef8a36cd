//! Mixtures of experts: which rows go through which, and what the results add up to.

use super::check::{aligned, area, bad, rows, same_len, small};
use super::error::CudaError;
use super::geometry;
use super::kernels::{File, Name};
use super::memory::{View, ViewMut};
use super::module::Arguments;
use super::segments::SEGMENT;
use super::stream::Stream;
use super::sys::Address;
use super::Ops;
use crate::model::{Experts, Groups, Scoring};

/// Ways to cut what an expert has into segments, in experts.cu.
const CUTS: usize = 3;
/// Rows up to which the block that sorts also routes: it has a warp for each.
const MAX_ROUTED_BY_SORT: usize = 32;
/// Groups of experts, of which a lane has one.
const MAX_GROUPS: usize = 32;

#[derive(Clone, Copy)]
#[repr(C)]
struct RouteArgs {
    scores: Address,
    bias: Address,
    selection: Address,
    own: Address,
    chosen: Address,
    factors: Address,
    rows: u32,
    count: u32,
    used: u32,
    sigmoid: u32,
    groups: u32,
    groups_used: u32,
    counted: u32,
    normalised: u32,
    scale: f32,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct SortArgs {
    route: RouteArgs,
    places: Address,
    rows: Address,
    experts: Address,
    scales: Address,
    segments: [Address; CUTS],
    most: [u32; CUTS],
    room: [u32; CUTS],
    routes: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct CombineArgs {
    results: Address,
    places: Address,
    factors: Address,
    chosen: Address,
    bias: Address,
    x: Address,
    gate: Address,
    y: Address,
    cols: u32,
    used: u32,
    adds: u32,
}

// SAFETY: as in experts.cu.
unsafe impl Arguments for RouteArgs {}
// SAFETY: as in experts.cu.
unsafe impl Arguments for SortArgs {}
// SAFETY: as in experts.cu.
unsafe impl Arguments for CombineArgs {}

/// Where it goes which experts rows have. A pair is a row and one of its experts.
#[derive(Debug)]
pub(crate) struct Routes<'a> {
    /// Of each pair, row by row, its expert, its factor, and its place among those that are sorted by expert.
    pub(crate) chosen: ViewMut<'a, u32>,
    pub(crate) factors: ViewMut<'a, f32>,
    pub(crate) places: ViewMut<'a, u32>,
    /// The row of each place, and its expert where somebody asks for that.
    pub(crate) rows: ViewMut<'a, u32>,
    pub(crate) experts: Option<ViewMut<'a, u32>>,
    /// If factors are of what experts take: those of each place. Those of pairs are 1 then.
    pub(crate) scales: Option<ViewMut<'a, f32>>,
    /// Tables of segments, for products: the rows that these have at most, and room for as many segments as there could be.
    pub(crate) cuts: Vec<(usize, ViewMut<'a, u32>)>,
}

/// What the experts of rows give.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Given<'a> {
    /// A row for each place.
    pub(crate) results: View<'a, f32>,
    /// Of each pair.
    pub(crate) places: View<'a, u32>,
    pub(crate) factors: View<'a, f32>,
    /// If experts have biases that results are without: the expert of each pair, and the biases of all experts, one behind the other.
    pub(crate) bias: Option<(View<'a, u32>, View<'a, f32>)>,
    /// Whether every row goes through a network beside them, whose result is there; if that has a gate, rows, and the weights of the gate.
    pub(crate) adds: bool,
    pub(crate) gate: Option<[View<'a, f32>; 2]>,
}

/// Segments of at most `most` rows that there could be, if each of `m` rows chooses `used` experts of `count`.
pub(crate) fn segments(m: usize, (count, used): (usize, usize), most: usize) -> usize {
    let pairs = m * used;
    // Experts with a pair fill up all of their segments but one.
    ((pairs + count.min(pairs) * (most - 1)) / most).min(count * m.div_ceil(most))
}

/// Where numbers are, or nowhere.
fn address(view: Option<View<'_, f32>>) -> Address {
    view.map_or(0, |view| view.address())
}

impl Ops {
    /// Chooses the experts of each row of `scores`, to which the first bias is added before, if there is one, and the second one for choosing, and whose factors are multiplied by those
    /// that come third; and sorts pairs by expert, those of the same one by row.
    pub(crate) fn experts_sort(
        &self,
        stream: &Stream,
        experts: Experts,
        (scores, biases): (View<'_, f32>, [Option<View<'_, f32>>; 3]),
        to: Routes<'_>,
    ) -> Result<(), CudaError> {
        let Experts { count, used, scoring, groups, normalised, scale, .. } = experts;
        if !(1..=count).contains(&used) {
            return Err(bad("used", "from 1 to the number of experts"));
        }
        let groups = groups.unwrap_or(Groups { count: 1, used: 1, counted: 2 });
        if !(1..=MAX_GROUPS.min(count)).contains(&groups.count)
            || count % groups.count != 0
            || !(1..=2).contains(&groups.counted)
            || used > groups.used * (count / groups.count)
        {
            return Err(bad(
                "groups",
                "at most 32 of as many experts, of which one or two count, and in those that are taken as many as are used",
            ));
        }
        let m = rows(scores.len(), count)?;
        let pairs = area("pairs of rows and experts", &[m, used])?;
        small("pairs of rows and experts", pairs)?;
        for (what, view) in [("chosen", &to.chosen), ("places", &to.places), ("rows", &to.rows)] {
            same_len(what, view.len(), pairs)?;
            self.here(view.context())?;
        }
        same_len("factors", to.factors.len(), pairs)?;
        self.here(to.factors.context())?;
        self.here(scores.context())?;
        for bias in biases.into_iter().flatten() {
            same_len("bias", bias.len(), count)?;
            self.here(bias.context())?;
        }
        if let Some(experts) = &to.experts {
            same_len("experts", experts.len(), pairs)?;
            self.here(experts.context())?;
        }
        if let Some(scales) = &to.scales {
            same_len("scales", scales.len(), pairs)?;
            self.here(scales.context())?;
        }
        let route = RouteArgs {
            scores: scores.address(),
            bias: address(biases[0]),
            selection: address(biases[1]),
            own: address(biases[2]),
            chosen: to.chosen.address(),
            factors: to.factors.address(),
            rows: small("rows", m)?,
            count: small("experts", count)?,
            used: small("used", used)?,
            sigmoid: (scoring == Scoring::Sigmoid).into(),
            groups: small("groups", groups.count)?,
            groups_used: small("groups used", groups.used)?,
            counted: small("counted", groups.counted)?,
            normalised: normalised.into(),
            scale,
        };
        if to.cuts.len() > CUTS {
            return Err(bad("cuts", "3 at most"));
        }
        let (mut tables, mut most, mut room) = ([0; CUTS], [0; CUTS], [0; CUTS]);
        for (i, (size, table)) in to.cuts.iter().enumerate() {
            let need = area("segments", &[segments(m, (count, used), (*size).max(1)), SEGMENT])?;
            if *size == 0 || table.len() < need {
                return Err(CudaError::WrongSize { arg: "segments", need, got: table.len() });
            }
            self.here(table.context())?;
            tables[i] = table.address();
            most[i] = small("rows of a segment", *size)?;
            room[i] = small("segments", rows(table.len(), SEGMENT)?)?;
        }
        let routes = m <= MAX_ROUTED_BY_SORT;
        let args = SortArgs {
            route,
            places: to.places.address(),
            rows: to.rows.address(),
            experts: to.experts.map_or(0, |experts| experts.address()),
            scales: to.scales.map_or(0, |scales| scales.address()),
            segments: tables,
            most,
            room,
            routes: routes.into(),
        };
        let geometry = geometry::sort(m, (count, used), routes);
        let name = |name| (File::experts, Name("experts", name, ""));
        // SAFETY: the arguments were checked.
        unsafe {
            if !routes {
                let geometry = geometry::route(m, (count, used));
                self.loader.launch(name("route"), stream, geometry, &route)?;
            }
            self.loader.launch(name("sort"), stream, geometry, &args)
        }
    }

    /// Adds up what the experts of each row give, from its first one to its last: `y` is the sum, or the sum and `y`, or the sum and `y / (1 + exp(-gate x))`.
    pub(crate) fn experts_combine(
        &self,
        stream: &Stream,
        given: Given<'_>,
        (y, cols): (ViewMut<'_, f32>, usize),
    ) -> Result<(), CudaError> {
        let m = rows(y.len(), cols)?;
        let pairs = given.places.len();
        let used = rows(pairs, m)?;
        if !cols.is_multiple_of(4) {
            return Err(bad("cols", "a multiple of 4"));
        }
        same_len("factors", given.factors.len(), pairs)?;
        same_len("results", given.results.len(), area("results", &[pairs, cols])?)?;
        let [x, gate] = given.gate.map_or([None; 2], |[x, gate]| [Some(x), Some(gate)]);
        for (what, view, len) in [("x", x, m * cols), ("gate", gate, cols)] {
            let Some(view) = view else { continue };
            same_len(what, view.len(), len)?;
            self.here(view.context())?;
        }
        let (mut chosen, mut bias) = (0, 0);
        if let Some((experts, biases)) = given.bias {
            same_len("experts", experts.len(), pairs)?;
            rows(biases.len(), cols)?;
            self.here(experts.context())?;
            self.here(biases.context())?;
            (chosen, bias) = (experts.address(), biases.address());
        }
        for context in [given.results.context(), given.places.context(), given.factors.context(), y.context()]
        {
            self.here(context)?;
        }
        let args = CombineArgs {
            results: given.results.address(),
            places: given.places.address(),
            factors: given.factors.address(),
            chosen,
            bias,
            x: address(x),
            gate: address(gate),
            y: y.address(),
            cols: small("cols", cols)?,
            used: small("used", used)?,
            adds: given.adds.into(),
        };
        aligned("results", args.results | args.y | args.x | args.gate | args.bias)?;
        let kernel = (File::experts, Name("experts", "combine", ""));
        // SAFETY: the arguments were checked; whoever sorted the pairs gave them places and experts that exist.
        unsafe { self.loader.launch(kernel, stream, geometry::by_fours(m, cols), &args) }
    }
}

pub(super) fn list(to: &mut dyn FnMut(File, Name, usize)) {
    to(File::experts, Name("experts", "route", ""), size_of::<RouteArgs>());
    to(File::experts, Name("experts", "sort", ""), size_of::<SortArgs>());
    to(File::experts, Name("experts", "combine", ""), size_of::<CombineArgs>());
}
