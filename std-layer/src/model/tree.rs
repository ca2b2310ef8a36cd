//! Trees of drafts, for speculative decoding: several continuations of a sequence that are computed in one step.

use std::fmt;

/// Drafts of a sequence as a tree: of each token the draft that it continues. A draft sees what the sequence has, the drafts on the path to it, and
/// itself. Its position is the length of the sequence plus the number of drafts before it on that path, as if only this path were there. (SpecInfer,
/// Miao et al., 2024; Medusa, Cai et al., 2024.)
///
/// ```
/// use gllm_kernels_std::model::Tree;
///
/// // Draft 0 has two continuations, of which the second goes on.
/// let tree = Tree::new(&[None, Some(0), Some(0), Some(2)])?;
/// assert_eq!((tree.len(), tree.depth(3)), (4, Some(2)));
/// assert!(Tree::new(&[Some(1), None]).is_err());
/// # Ok::<(), gllm_kernels_std::model::TreeError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// The drafts on the path to each, its own among them: bit `i` is draft `i`.
    paths: Vec<u64>,
}

/// Why drafts are no tree, or why there is no such path in one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TreeError {
    /// More drafts than [`Tree::MOST`].
    TooMany(usize),
    /// A draft that does not come behind its parent.
    Parent {
        /// The draft.
        draft: usize,
        /// Its parent.
        parent: usize,
    },
    /// A path to a draft that does not exist.
    NoDraft {
        /// The draft.
        draft: usize,
        /// How many there are.
        drafts: usize,
    },
    /// A path on which a draft does not follow its parent.
    NotNext {
        /// The draft.
        draft: usize,
        /// What it follows on the path; `None`: what was before the tree.
        behind: Option<usize>,
        /// Its parent.
        parent: Option<usize>,
    },
}

impl fmt::Display for TreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |draft: &Option<usize>| match draft {
            Some(draft) => format!("draft {draft}"),
            None => "what was before the tree".to_owned(),
        };
        match self {
            Self::TooMany(drafts) => {
                write!(f, "a tree of {drafts} drafts: it can have {} at most", Tree::MOST)
            }
            Self::Parent { draft, parent } => {
                write!(f, "draft {draft} continues draft {parent}, which does not come before it")
            }
            Self::NoDraft { draft, drafts } => write!(f, "draft {draft} of a tree of {drafts}"),
            Self::NotNext { draft, behind, parent } => {
                write!(f, "draft {draft} continues {}, and cannot follow {}", name(parent), name(behind))
            }
        }
    }
}

impl std::error::Error for TreeError {}

impl Tree {
    /// Drafts of a tree, at most.
    pub const MOST: usize = u64::BITS as usize;

    /// The tree in which draft `i` continues draft `parents[i]`, or, with `None`, what the sequence has. Without drafts it stands for none: the
    /// tokens of a run follow one another.
    ///
    /// # Errors
    /// `TooMany`; `Parent` unless each parent comes before its children.
    pub fn new(parents: &[Option<usize>]) -> Result<Self, TreeError> {
        if parents.len() > Self::MOST {
            return Err(TreeError::TooMany(parents.len()));
        }
        let mut paths: Vec<u64> = Vec::with_capacity(parents.len());
        for (draft, &parent) in parents.iter().enumerate() {
            let before = match parent {
                None => 0,
                Some(parent) => *paths.get(parent).ok_or(TreeError::Parent { draft, parent })?,
            };
            paths.push(before | 1 << draft);
        }
        Ok(Self { paths })
    }

    /// How many drafts there are.
    pub fn len(&self) -> usize {
        self.paths.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// How many drafts come before this one on its path; `None` if it does not exist.
    pub fn depth(&self, draft: usize) -> Option<usize> {
        self.paths.get(draft).map(|path| path.count_ones() as usize - 1)
    }

    /// The drafts on the path to each draft, its own among them: bit `i` is draft `i`.
    pub(crate) fn paths(&self) -> &[u64] {
        &self.paths
    }

    /// What each draft sees of the tokens that are cached up to its own: bit 0 is its own, bit `i` the one `i` before it.
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    pub(crate) fn seen(&self) -> Vec<u64> {
        let before = |draft: usize| u64::MAX.checked_shl(draft as u32 + 1).unwrap_or(0);
        let word = |(draft, path): (usize, &u64)| path.reverse_bits() >> (63 - draft) | before(draft);
        self.paths.iter().enumerate().map(word).collect()
    }

    /// Checks that each of these drafts continues the one before it.
    pub(super) fn check_path(&self, path: &[usize]) -> Result<(), TreeError> {
        let mut behind = None;
        for &draft in path {
            let no_draft = TreeError::NoDraft { draft, drafts: self.len() };
            let before = self.paths.get(draft).ok_or(no_draft)? ^ 1 << draft;
            let parent = before.checked_ilog2().map(|parent| parent as usize);
            if parent != behind {
                return Err(TreeError::NotNext { draft, behind, parent });
            }
            behind = Some(draft);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_from_the_root() {
        let tree = Tree::new(&[None, Some(0), Some(0), Some(2), None, Some(1)]).unwrap();
        assert_eq!(tree.paths(), [0b1, 0b11, 0b101, 0b1101, 0b10000, 0b100011]);
        let depths: Vec<_> = (0..7).map(|draft| tree.depth(draft)).collect();
        assert_eq!(depths, [Some(0), Some(1), Some(1), Some(2), Some(0), Some(2), None]);
        for path in [&[][..], &[0], &[4], &[0, 2, 3], &[0, 1, 5]] {
            tree.check_path(path).unwrap();
        }
        let refused = |path: &[usize]| tree.check_path(path).unwrap_err();
        assert_eq!(refused(&[0, 6]), TreeError::NoDraft { draft: 6, drafts: 6 });
        let not_next = |draft, behind, parent| TreeError::NotNext { draft, behind, parent };
        assert_eq!(refused(&[1]), not_next(1, None, Some(0)));
        assert_eq!(refused(&[0, 4]), not_next(4, Some(0), None));
        assert_eq!(refused(&[0, 1, 3]), not_next(3, Some(1), Some(2)));
        assert_eq!(refused(&[0, 0]), not_next(0, Some(0), None));
        assert_eq!(refused(&[0, 1, 3]).to_string(), "draft 3 continues draft 2, and cannot follow draft 1");
        assert!(refused(&[1]).to_string().ends_with("cannot follow what was before the tree"));
    }

    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    #[test]
    fn words_of_kernels_begin_with_the_draft_itself() {
        let tree = Tree::new(&[None, Some(0), Some(0), Some(2), None]).unwrap();
        assert_eq!(tree.seen(), [!0, !0, !0b10, !0b100, !0b11110]);
        let roots = Tree::new(&[None; 64]).unwrap();
        assert_eq!(roots.seen()[62..], [1 << 63 | 1, 1]);
    }

    #[test]
    fn what_is_no_tree_is_refused() {
        let chain = |n: usize| (0..n).map(|i: usize| i.checked_sub(1)).collect::<Vec<_>>();
        assert_eq!(Tree::new(&chain(64)).unwrap().depth(63), Some(63));
        assert_eq!(Tree::new(&chain(65)), Err(TreeError::TooMany(65)));
        assert_eq!(Tree::new(&[None, Some(1)]), Err(TreeError::Parent { draft: 1, parent: 1 }));
        assert_eq!(Tree::new(&[None, Some(7)]), Err(TreeError::Parent { draft: 1, parent: 7 }));
        assert_eq!(
            Tree::new(&[Some(0)]).unwrap_err().to_string(),
            "draft 0 continues draft 0, which does not come before it"
        );
        assert!(Tree::new(&[]).unwrap().is_empty());
    }
}
