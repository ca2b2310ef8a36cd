//! Which page of a key-value cache holds which positions of which sequence; the memory itself belongs to a backend.
//!
//! All pages have room for the same number of positions. Layers with the same attention window form a group, and each group has
//! its own pages. Each sequence has a table of pages for each group: position `p` lies in slot `p % page_tokens` of page
//! `table[p / page_tokens]`, for every layer of the group. Sequences may share pages. A page is free again when all of its
//! positions have left the window.
//!
//! Recurrent layers keep a state of each sequence instead, which its last position has changed. They are a group, too: the last one, in which each
//! sequence with positions has one page.

use std::collections::HashMap;
use std::fmt;

use super::tree::{Tree, TreeError};

/// Layers with the same window, and the pages they have together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// How many positions a query sees, its own included; `None`: all before it.
    pub window: Option<usize>,
    /// Number of pages, for all sequences.
    pub pages: usize,
}

/// A sequence of a [`Pages`]. Those of sequences that were dropped are not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SequenceId(u64);

/// The first `tokens` positions in page `to` must become those in page `from` before anything is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageCopy {
    /// Of which group both pages are.
    pub group: usize,
    /// Page that other sequences go on using.
    pub from: u32,
    /// Page of the sequence that is about to be continued.
    pub to: u32,
    /// Positions that matter.
    pub tokens: usize,
}

/// A position's keys and values that must be copied to another place, behind those that are listed before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PositionCopy {
    /// Of which group the pages are.
    pub group: usize,
    /// The page, and the slot in it.
    pub from: (u32, usize),
    /// The page, and the slot in it.
    pub to: (u32, usize),
}

/// Why pages cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CacheError {
    /// A group has too few free pages. Nothing has changed: another sequence can be dropped, and the same tried again.
    Full {
        /// Which group.
        group: usize,
        /// Pages it would have to have.
        needed: usize,
        /// Pages it has.
        free: usize,
    },
    /// A sequence that does not exist (any more).
    Unknown(SequenceId),
    /// A sequence that occurs twice among those to continue.
    Twice(SequenceId),
    /// More positions of a sequence than there are.
    PastEnd {
        /// How many were requested.
        asked: usize,
        /// How many there are.
        len: usize,
    },
    /// Positions that a window has left behind, so that they cannot be shared any more; or a state that later positions have changed.
    Forgotten {
        /// Which group has forgotten them.
        group: usize,
        /// The first position that would be needed; of a state, the one that it would have to stand before.
        position: usize,
    },
    /// A sequence whose last positions are drafts, of which a path must be accepted first.
    Drafts {
        /// Which sequence.
        sequence: SequenceId,
        /// How many drafts there are.
        drafts: usize,
    },
    /// No tree of drafts, or no path in one.
    Tree(TreeError),
    /// More positions than a sequence may have.
    TooLong {
        /// How many positions there would be.
        positions: usize,
        /// How many there may be.
        most: usize,
    },
    /// Pages without room, a window of nothing, or 2^32 - 1 pages and more.
    BadGeometry,
}

impl fmt::Display for CacheError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full { group, needed, free } => write!(
                f,
                "the key-value cache is full: {needed} pages are needed and {free} are free (group {group}); drop a sequence, or make the cache larger"
            ),
            Self::Unknown(id) => write!(f, "there is no sequence {}", id.0),
            Self::Twice(id) => write!(f, "sequence {} occurs twice", id.0),
            Self::PastEnd { asked, len } => write!(f, "{asked} positions of a sequence that has {len}"),
            Self::Forgotten { group, position } => {
                write!(f, "position {position} is needed, but group {group} has left it behind")
            }
            Self::Drafts { sequence, drafts } => write!(
                f,
                "sequence {} has {drafts} drafts, of which a path must be accepted before it goes on",
                sequence.0
            ),
            Self::Tree(e) => e.fmt(f),
            Self::TooLong { positions, most } => {
                write!(f, "{positions} positions are more than a sequence can have ({most})")
            }
            Self::BadGeometry => f.write_str("pages need room for a position, windows at least one, and groups less than 2^32 - 1 pages"),
        }
    }
}

impl std::error::Error for CacheError {}

impl From<TreeError> for CacheError {
    fn from(e: TreeError) -> Self {
        Self::Tree(e)
    }
}

/// The pages of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pool {
    /// Positions that a page has room for: any number if it is a state.
    size: usize,
    window: Option<usize>,
    /// How many tables each page is in.
    references: Vec<u32>,
    /// Pages in no table; the last one is taken first.
    free: Vec<u32>,
}

impl Pool {
    /// What a page of states has room for.
    const ANY: usize = usize::MAX;

    /// So many pages, all of them free.
    fn new(size: usize, window: Option<usize>, pages: usize) -> Self {
        // The first page first.
        Self { size, window, references: vec![0; pages], free: (0..pages as u32).rev().collect() }
    }

    /// Whether what the first `len` positions of a sequence of `all` have left is still there, if pages are states.
    fn keeps(&self, len: usize, all: usize) -> bool {
        self.size != Self::ANY || len == 0 || len == all
    }

    /// The first position that a query at position `at` sees.
    fn seen_from(&self, at: usize) -> usize {
        self.window.map_or(0, |w| (at + 1).saturating_sub(w))
    }

    fn release(&mut self, page: u32) {
        let references = &mut self.references[page as usize];
        *references -= 1;
        if *references == 0 {
            self.free.push(page);
        }
    }

    /// A page of one's own. There must be one.
    fn take(&mut self) -> u32 {
        let page = self.free.pop().expect("free pages were counted");
        self.references[page as usize] = 1;
        page
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Sequence {
    len: usize,
    /// For each group.
    tables: Vec<Table>,
    /// What the last positions are, if they are drafts.
    drafts: Tree,
}

impl Sequence {
    /// Positions that are no drafts.
    fn accepted(&self) -> usize {
        self.len - self.drafts.len()
    }

    /// Checks that there are so many positions, none of them a draft.
    fn check(&self, id: SequenceId, len: usize) -> Result<(), CacheError> {
        if len > self.len {
            return Err(CacheError::PastEnd { asked: len, len: self.len });
        }
        if len > self.accepted() {
            return Err(CacheError::Drafts { sequence: id, drafts: self.drafts.len() });
        }
        Ok(())
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Table {
    /// Pages left behind, the first ones.
    gone: usize,
    pages: Vec<u32>,
}

/// Page tables of several sequences, and which pages are free.
///
/// ```
/// use gllm_kernels_std::model::{Group, Pages};
///
/// // Pages of 16 positions: 64 for layers that see everything, 8 for those that see 32 positions.
/// let mut pages = Pages::new(16, &[Group { window: None, pages: 64 }, Group { window: Some(32), pages: 8 }])?;
/// let first = pages.create();
/// pages.append(&[(first, 40)])?;
/// assert_eq!(pages.table(first, 0)?.len(), 3);
/// // The second sequence shares what the first has, and continues it in a copy of the page that is not full.
/// let second = pages.fork(first, 40)?;
/// assert_eq!(pages.free(0), 61);
/// let copies = pages.append(&[(second, 1)])?;
/// assert_eq!((copies.len(), copies[0].tokens), (2, 8));
/// pages.remove(first)?;
/// # Ok::<(), gllm_kernels_std::model::CacheError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pages {
    page_tokens: usize,
    pools: Vec<Pool>,
    sequences: HashMap<SequenceId, Sequence>,
    next: u64,
    /// Positions that a sequence may have.
    longest: usize,
}

impl Pages {
    /// In a table: the page that was here is free again. No window reaches it.
    pub const GONE: u32 = u32::MAX;
    /// What 32 bits count.
    const LONGEST: usize = u32::MAX as usize;

    /// Pages with room for `page_tokens` positions each, all of them free.
    ///
    /// # Errors
    /// `BadGeometry`.
    pub fn new(page_tokens: usize, groups: &[Group]) -> Result<Self, CacheError> {
        let fits = |g: &Group| g.window != Some(0) && g.pages < Self::GONE as usize;
        if page_tokens == 0 || !groups.iter().all(fits) {
            return Err(CacheError::BadGeometry);
        }
        let pools = groups.iter().map(|g| Pool::new(page_tokens, g.window, g.pages)).collect();
        Ok(Self { page_tokens, pools, sequences: HashMap::new(), next: 0, longest: Self::LONGEST })
    }

    /// The same for sequences of `longest` positions at most, those of drafts counted.
    pub fn with_longest(self, longest: usize) -> Self {
        Self { longest: longest.min(Self::LONGEST), ..self }
    }

    /// The same with a group behind the others for the states of so many sequences.
    ///
    /// # Errors
    /// `BadGeometry`.
    pub fn with_states(mut self, sequences: usize) -> Result<Self, CacheError> {
        if sequences >= Self::GONE as usize {
            return Err(CacheError::BadGeometry);
        }
        self.pools.push(Pool::new(Pool::ANY, None, sequences));
        Ok(self)
    }

    /// Positions that a page has room for.
    pub fn page_tokens(&self) -> usize {
        self.page_tokens
    }

    /// Free pages of a group.
    ///
    /// # Panics
    /// If there is no such group.
    pub fn free(&self, group: usize) -> usize {
        self.pools[group].free.len()
    }

    /// A new sequence, without positions.
    pub fn create(&mut self) -> SequenceId {
        self.insert(Sequence { tables: vec![Table::default(); self.pools.len()], ..Sequence::default() })
    }

    fn insert(&mut self, sequence: Sequence) -> SequenceId {
        let id = SequenceId(self.next);
        self.next += 1;
        self.sequences.insert(id, sequence);
        id
    }

    fn sequence(&self, id: SequenceId) -> Result<&Sequence, CacheError> {
        self.sequences.get(&id).ok_or(CacheError::Unknown(id))
    }

    /// Positions of a sequence, those of drafts among them.
    ///
    /// # Errors
    /// `Unknown`.
    pub fn positions(&self, id: SequenceId) -> Result<usize, CacheError> {
        self.sequence(id).map(|s| s.len)
    }

    /// The pages of a sequence in a group, in order; [`GONE`](Self::GONE) for those left behind by a window.
    ///
    /// # Errors
    /// `Unknown`.
    ///
    /// # Panics
    /// If there is no such group.
    pub fn table(&self, id: SequenceId, group: usize) -> Result<&[u32], CacheError> {
        self.sequence(id).map(|s| &*s.tables[group].pages)
    }

    /// Continues each of these sequences by a number of positions, for one step. Each sequence occurs once.
    ///
    /// First, pages are given up that no query of the new positions, or later ones, sees. Then each sequence gets the pages it
    /// lacks. Where its last page is not full and others use it, too, it gets one of its own: the copies that are returned must be made
    /// before the step writes.
    ///
    /// # Errors
    /// `Full`, `Unknown`, `Twice`, `TooLong`; `Drafts` if a path of a sequence's drafts has yet to be accepted. In each case everything is as it was.
    pub fn append(&mut self, wanted: &[(SequenceId, usize)]) -> Result<Vec<PageCopy>, CacheError> {
        let mut ids: Vec<_> = wanted.iter().map(|w| w.0).collect();
        ids.sort_unstable();
        if let Some(pair) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(CacheError::Twice(pair[0]));
        }
        for &(id, n) in wanted {
            let sequence = self.sequence(id)?;
            sequence.check(id, sequence.len)?;
            let end = sequence.len.saturating_add(n);
            if end > self.longest {
                return Err(CacheError::TooLong { positions: end, most: self.longest });
            }
        }
        for group in 0..self.pools.len() {
            let (needed, free) = self.needed(group, wanted)?;
            if needed > free {
                return Err(CacheError::Full { group, needed, free });
            }
        }
        let mut copies = Vec::new();
        for group in 0..self.pools.len() {
            self.grow(group, wanted, &mut copies);
        }
        for (id, n) in wanted {
            if let Some(sequence) = self.sequences.get_mut(id) {
                sequence.len += n;
            }
        }
        Ok(copies)
    }

    /// How many pages of a group `grow` takes, and how many are free when it does.
    fn needed(&self, group: usize, wanted: &[(SequenceId, usize)]) -> Result<(usize, usize), CacheError> {
        let pool = &self.pools[group];
        let size = pool.size;
        let (mut needed, mut free) = (0, pool.free.len());
        // Where references change, how many are left.
        let mut left: HashMap<u32, u32> = HashMap::new();
        let growing = || wanted.iter().filter(|w| w.1 > 0);
        for &(id, _) in growing() {
            let sequence = self.sequence(id)?;
            let table = &sequence.tables[group];
            for &page in &table.pages[table.gone..table.gone.max(pool.seen_from(sequence.len) / size)] {
                let left = left.entry(page).or_insert(pool.references[page as usize]);
                *left -= 1;
                free += usize::from(*left == 0);
            }
        }
        for &(id, n) in growing() {
            let sequence = self.sequence(id)?;
            let table = &sequence.tables[group].pages;
            needed += (sequence.len + n).div_ceil(size) - table.len();
            if let (Some(&last), true) = (table.last(), sequence.len % size != 0) {
                let left = left.entry(last).or_insert(pool.references[last as usize]);
                // Whoever is the last to use it keeps it.
                if *left > 1 {
                    *left -= 1;
                    needed += 1;
                }
            }
        }
        Ok((needed, free))
    }

    /// Gives up and takes the pages of a group; there are enough.
    fn grow(&mut self, group: usize, wanted: &[(SequenceId, usize)], copies: &mut Vec<PageCopy>) {
        let pool = &mut self.pools[group];
        let size = pool.size;
        let growing = || wanted.iter().filter(|w| w.1 > 0);
        for (id, _) in growing() {
            let Some(sequence) = self.sequences.get_mut(id) else { continue };
            let table = &mut sequence.tables[group];
            let seen = table.gone.max(pool.seen_from(sequence.len) / size);
            for page in &mut table.pages[table.gone..seen] {
                pool.release(std::mem::replace(page, Self::GONE));
            }
            table.gone = seen;
        }
        for (id, n) in growing() {
            let Some(sequence) = self.sequences.get_mut(id) else { continue };
            let table = &mut sequence.tables[group].pages;
            let tokens = sequence.len % size;
            if let (Some(last), true) = (table.last_mut(), tokens != 0) {
                if pool.references[*last as usize] > 1 {
                    let (from, to) = (*last, pool.take());
                    pool.release(from);
                    *last = to;
                    copies.push(PageCopy { group, from, to, tokens });
                }
            }
            table.resize_with((sequence.len + n).div_ceil(size), || pool.take());
        }
    }

    /// Makes the last positions of a sequence drafts: position `i` of them is draft `i` of the tree.
    ///
    /// # Errors
    /// `Unknown`; `PastEnd` if the tree has more drafts than the sequence has positions.
    pub fn set_drafts(&mut self, id: SequenceId, tree: &Tree) -> Result<(), CacheError> {
        let sequence = self.sequences.get_mut(&id).ok_or(CacheError::Unknown(id))?;
        if tree.len() > sequence.len {
            return Err(CacheError::PastEnd { asked: tree.len(), len: sequence.len });
        }
        sequence.drafts = tree.clone();
        Ok(())
    }

    /// Accepts these drafts of a sequence, each of which continues the one before it, as its next positions, and takes back the others. The copies
    /// that are returned must be made, in this order, before anything else is written.
    ///
    /// # Errors
    /// `Unknown`; `Tree` unless the drafts are such a path. In each case everything is as it was.
    pub fn accept(&mut self, id: SequenceId, path: &[usize]) -> Result<Vec<PositionCopy>, CacheError> {
        let (size, sequence) = (self.page_tokens, self.sequence(id)?);
        sequence.drafts.check_path(path)?;
        let first = sequence.accepted();
        let mut copies = Vec::new();
        for (group, table) in sequence.tables.iter().enumerate() {
            let place = |position: usize| (table.pages[position / size], position % size);
            let moved = path.iter().enumerate().filter(|&(to, &draft)| to != draft);
            let copy =
                |(to, &draft)| PositionCopy { group, from: place(first + draft), to: place(first + to) };
            copies.extend(moved.map(copy));
        }
        if let Some(sequence) = self.sequences.get_mut(&id) {
            sequence.drafts = Tree::default();
        }
        self.truncate(id, first + path.len())?;
        Ok(copies)
    }

    /// Takes back the positions of a sequence from `len` on. Pages that only these were in are free again.
    ///
    /// # Errors
    /// `Unknown`; `Drafts` if only some of its drafts would be left; `PastEnd` if the sequence is shorter; `Forgotten` if its windows have left behind what the next position would see. In each
    /// case everything is as it was.
    pub fn truncate(&mut self, id: SequenceId, len: usize) -> Result<(), CacheError> {
        let sequence = self.sequences.get_mut(&id).ok_or(CacheError::Unknown(id))?;
        sequence.check(id, len)?;
        for (group, (pool, table)) in self.pools.iter().zip(&sequence.tables).enumerate() {
            let (seen, end) = (pool.seen_from(len), len.div_ceil(pool.size));
            if seen / pool.size < table.gone.min(end) {
                return Err(CacheError::Forgotten { group, position: seen });
            }
            if !pool.keeps(len, sequence.len) {
                return Err(CacheError::Forgotten { group, position: len });
            }
        }
        self.cut(id, len);
        Ok(())
    }

    /// Takes back the last position of a sequence, which has been counted, but never been computed: states are what they were before it.
    ///
    /// # Errors
    /// `Unknown`; `PastEnd` if it has none.
    pub(crate) fn retract(&mut self, id: SequenceId) -> Result<(), CacheError> {
        let len = self.sequence(id)?.len.checked_sub(1);
        self.cut(id, len.ok_or(CacheError::PastEnd { asked: 1, len: 0 })?);
        Ok(())
    }

    /// Ends a sequence behind `len` positions, whose pages it still has.
    fn cut(&mut self, id: SequenceId, len: usize) {
        let Some(sequence) = self.sequences.get_mut(&id) else { return };
        for (pool, table) in self.pools.iter_mut().zip(&mut sequence.tables) {
            let end = len.div_ceil(pool.size);
            // The last page first, so that the first is taken next.
            let had = table.pages.drain(end..).rev().filter(|&page| page != Self::GONE);
            had.for_each(|page| pool.release(page));
            table.gone = table.gone.min(end);
        }
        (sequence.len, sequence.drafts) = (len, Tree::default());
    }

    /// A new sequence that begins with the first `len` positions of another, in the same pages.
    ///
    /// # Errors
    /// `Unknown`; `PastEnd` if the other is shorter; `Drafts` if these would be drafts; `Forgotten` if its windows have left behind what the new one would see.
    pub fn fork(&mut self, id: SequenceId, len: usize) -> Result<SequenceId, CacheError> {
        let sequence = self.sequence(id)?;
        sequence.check(id, len)?;
        let mut tables = Vec::with_capacity(self.pools.len());
        for (group, (pool, table)) in self.pools.iter().zip(&sequence.tables).enumerate() {
            let (seen, end) = (pool.seen_from(len), len.div_ceil(pool.size));
            let gone = (seen / pool.size).min(end);
            if !pool.keeps(len, sequence.len) {
                return Err(CacheError::Forgotten { group, position: len });
            }
            if gone < table.gone && gone < end {
                return Err(CacheError::Forgotten { group, position: seen });
            }
            let mut pages = table.pages[..end].to_vec();
            pages[..gone].fill(Self::GONE);
            tables.push(Table { gone, pages });
        }
        for (pool, table) in self.pools.iter_mut().zip(&tables) {
            for &page in &table.pages[table.gone..] {
                pool.references[page as usize] += 1;
            }
        }
        Ok(self.insert(Sequence { len, tables, drafts: Tree::default() }))
    }

    /// Ends a sequence. Pages that no other has are free again.
    ///
    /// # Errors
    /// `Unknown`.
    pub fn remove(&mut self, id: SequenceId) -> Result<(), CacheError> {
        let sequence = self.sequences.remove(&id).ok_or(CacheError::Unknown(id))?;
        for (pool, table) in self.pools.iter_mut().zip(sequence.tables) {
            // The last page first, so that the first is taken next.
            for &page in table.pages[table.gone..].iter().rev() {
                pool.release(page);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "pages_tests.rs"]
mod tests;
