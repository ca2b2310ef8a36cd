//! Pages against a model that keeps every position's contents.

use gllm_testkit::data::Source;

use super::*;

/// What a backend would do: memory for each slot of each page, and each sequence's contents.
struct Check {
    pages: Pages,
    memory: Vec<Vec<u64>>,
    contents: Vec<(SequenceId, Vec<u64>)>,
    written: u64,
}

impl Check {
    fn append(&mut self, wanted: &[(usize, usize)]) -> Result<(), CacheError> {
        let ids: Vec<_> = wanted.iter().map(|&(i, n)| (self.contents[i].0, n)).collect();
        let copies = self.pages.append(&ids)?;
        let size = self.pages.page_tokens();
        for PageCopy { group, from, to, tokens } in copies {
            let (from, to) = (from as usize * size, to as usize * size);
            self.memory[group].copy_within(from..from + tokens, to);
        }
        for &(i, n) in wanted {
            for _ in 0..n {
                self.written += 1;
                let (id, contents) = &mut self.contents[i];
                for (group, memory) in self.memory.iter_mut().enumerate() {
                    let page = self.pages.table(*id, group).unwrap()[contents.len() / size];
                    memory[page as usize * size + contents.len() % size] = self.written;
                }
                contents.push(self.written);
            }
        }
        // What the queries of this step see.
        for &(i, n) in wanted.iter().filter(|w| w.1 > 0) {
            self.visible(i, self.contents[i].1.len() - n);
        }
        Ok(())
    }

    /// Accepts the path to a draft, or none, of a tree that the last positions of a sequence become.
    fn drafts(&mut self, i: usize, parents: &[Option<usize>], end: Option<usize>) {
        let (id, contents) = &mut self.contents[i];
        let (id, first) = (*id, contents.len() - parents.len());
        self.pages.set_drafts(id, &Tree::new(parents).unwrap()).unwrap();
        let drafts = parents.len();
        let refused = Err(CacheError::Drafts { sequence: id, drafts });
        if drafts > 0 {
            let before = self.pages.clone();
            assert_eq!(self.pages.append(&[(id, 1)]), refused.map(|()| Vec::new()));
            assert_eq!(self.pages.fork(id, first + 1), refused.map(|()| id));
            assert_eq!(self.pages.truncate(id, first + drafts), refused);
            let parent = parents[drafts - 1];
            let behind = Some(drafts - 1);
            let wrong = TreeError::NotNext { draft: drafts - 1, behind, parent };
            assert_eq!(
                self.pages.accept(id, &[drafts]),
                Err(TreeError::NoDraft { draft: drafts, drafts }.into())
            );
            let path: Vec<usize> = path_to(parents, behind).into_iter().chain([drafts - 1]).collect();
            assert_eq!(self.pages.accept(id, &path), Err(wrong.into()));
            assert_eq!(self.pages, before);
        }
        let path = path_to(parents, end);
        let kept: Vec<u64> = path.iter().map(|draft| contents[first + draft]).collect();
        contents.truncate(first);
        contents.extend(kept);
        let size = self.pages.page_tokens();
        for PositionCopy { group, from, to } in self.pages.accept(id, &path).unwrap() {
            let [from, to] = [from, to].map(|(page, slot)| page as usize * size + slot);
            self.memory[group][to] = self.memory[group][from];
        }
        self.visible(i, first + path.len());
    }

    /// Every position that a query at `at` sees, and every later one, is where it should be.
    fn visible(&self, i: usize, at: usize) {
        let (id, contents) = &self.contents[i];
        let size = self.pages.page_tokens();
        for (group, memory) in self.memory.iter().enumerate() {
            let table = self.pages.table(*id, group).unwrap();
            assert_eq!(table.len(), contents.len().div_ceil(size));
            for p in self.pages.pools[group].seen_from(at)..contents.len() {
                assert_ne!(table[p / size], Pages::GONE, "position {p} of group {group} is gone");
                assert_eq!(memory[table[p / size] as usize * size + p % size], contents[p]);
            }
        }
    }

    /// Free pages are those in no table; references count tables.
    fn consistent(&self) {
        for (group, pool) in self.pages.pools.iter().enumerate() {
            let mut references = vec![0; pool.references.len()];
            for (id, contents) in &self.contents {
                assert_eq!(self.pages.positions(*id), Ok(contents.len()));
                for &page in self.pages.table(*id, group).unwrap().iter().filter(|&&p| p != Pages::GONE) {
                    references[page as usize] += 1;
                }
            }
            assert_eq!(references, pool.references);
            let free: Vec<u32> = (0..).zip(&references).filter(|r| *r.1 == 0).map(|r| r.0).collect();
            let mut found = pool.free.clone();
            found.sort_unstable();
            assert_eq!(found, free, "group {group}");
        }
        assert_eq!(self.pages.sequences.len(), self.contents.len());
    }
}

/// The drafts from the root to this one, if it is one.
fn path_to(parents: &[Option<usize>], end: Option<usize>) -> Vec<usize> {
    let mut path: Vec<usize> = std::iter::successors(end, |&draft| parents[draft]).collect();
    path.reverse();
    path
}

#[test]
fn pages_hold_what_is_seen() {
    let mut source = Source::new(21);
    let (mut full, mut forgotten, mut shared, mut cut, mut accepted) = (0, 0, 0, 0, 0);
    for round in 0..200 {
        let size = 1 + source.below(7);
        let window = |source: &mut Source| (source.below(3) > 0).then(|| 1 + source.below(12));
        let groups: Vec<Group> = (0..1 + source.below(3))
            .map(|_| Group { window: window(&mut source), pages: 4 + source.below(30) })
            .collect();
        let mut check = Check {
            pages: Pages::new(size, &groups).unwrap(),
            memory: groups.iter().map(|g| vec![0; g.pages * size]).collect(),
            contents: Vec::new(),
            written: 0,
        };
        for _ in 0..300 {
            let count = check.contents.len();
            match source.below(10) {
                0 => {
                    let id = check.pages.create();
                    check.contents.push((id, Vec::new()));
                }
                1 if count > 0 => {
                    let (id, _) = check.contents.swap_remove(source.below(count));
                    check.pages.remove(id).unwrap();
                    assert_eq!(check.pages.remove(id), Err(CacheError::Unknown(id)));
                }
                2 if count > 0 => {
                    let (id, contents) = check.contents[source.below(count)].clone();
                    let len = source.below(contents.len() + 1);
                    let before = check.pages.clone();
                    match check.pages.fork(id, len) {
                        Ok(new) => {
                            check.contents.push((new, contents[..len].to_vec()));
                            check.visible(check.contents.len() - 1, len);
                            shared += usize::from(len > 0);
                        }
                        Err(CacheError::Forgotten { group, position }) => {
                            // It is true: a page with a position in that window is gone.
                            let table = before.table(id, group).unwrap();
                            assert!(position <= len && table[position / size] == Pages::GONE);
                            assert_eq!(check.pages, before);
                            forgotten += 1;
                        }
                        Err(other) => panic!("{other}"),
                    }
                }
                3 if count > 0 => {
                    let i = source.below(count);
                    let (id, contents) = &mut check.contents[i];
                    let (id, len) = (*id, contents.len() - source.below(contents.len().min(20) + 1));
                    let before = check.pages.clone();
                    match check.pages.truncate(id, len) {
                        Ok(()) => {
                            contents.truncate(len);
                            check.visible(i, len);
                            cut += 1;
                        }
                        Err(CacheError::Forgotten { group, position }) => {
                            let table = before.table(id, group).unwrap();
                            assert!(position <= len && table[position / size] == Pages::GONE);
                            assert_eq!(check.pages, before);
                        }
                        Err(other) => panic!("{other}"),
                    }
                }
                4 if count > 0 => {
                    let (i, drafts) = (source.below(count), source.below(12));
                    if check.append(&[(i, drafts)]).is_ok() {
                        let parents: Vec<_> =
                            (0..drafts).map(|draft| source.below(draft + 1).checked_sub(1)).collect();
                        check.drafts(i, &parents, source.below(drafts + 1).checked_sub(1));
                        accepted += usize::from(drafts > 0);
                    }
                }
                _ if count > 0 => {
                    let mut wanted: Vec<(usize, usize)> = Vec::new();
                    for _ in 0..1 + source.below(3) {
                        let i = source.below(count);
                        if wanted.iter().all(|w| w.0 != i) {
                            wanted.push((i, source.below(9)));
                        }
                    }
                    let before = check.pages.clone();
                    if let Err(e) = check.append(&wanted) {
                        let CacheError::Full { group, needed, free } = e else { panic!("{e}") };
                        assert_eq!(check.pages, before, "round {round}");
                        assert!(needed > free && free <= groups[group].pages);
                        full += 1;
                        // With somebody gone, it goes on.
                        let (id, _) = check.contents.swap_remove(source.below(count));
                        check.pages.remove(id).unwrap();
                    }
                }
                _ => {}
            }
            check.consistent();
        }
    }
    assert!(full > 1000 && forgotten > 100 && shared > 1000, "{full} {forgotten} {shared}");
    assert!(cut > 1000 && accepted > 1000, "{cut} {accepted}");
}

#[test]
fn a_full_cache_is_full_to_the_last_page() {
    let mut pages = Pages::new(4, &[Group { window: None, pages: 3 }]).unwrap();
    let (a, b) = (pages.create(), pages.create());
    pages.append(&[(a, 8)]).unwrap();
    assert_eq!(pages.append(&[(b, 5)]), Err(CacheError::Full { group: 0, needed: 2, free: 1 }));
    pages.append(&[(b, 4)]).unwrap();
    assert_eq!(pages.free(0), 0);
    assert_eq!(pages.append(&[(a, 1)]), Err(CacheError::Full { group: 0, needed: 1, free: 0 }));
    pages.remove(b).unwrap();
    pages.append(&[(a, 4)]).unwrap();
    assert_eq!(pages.table(a, 0), Ok(&[0, 1, 2][..]));
}

#[test]
fn a_window_needs_no_more_pages_than_it_spans() {
    let mut pages = Pages::new(4, &[Group { window: Some(8), pages: 3 }]).unwrap();
    let id = pages.create();
    for _ in 0..1000 {
        pages.append(&[(id, 1)]).unwrap();
    }
    let table = pages.table(id, 0).unwrap();
    assert_eq!(table.iter().filter(|&&p| p != Pages::GONE).count(), 2);
}

#[test]
fn misuse_is_an_error() {
    let bad = |size, group| Pages::new(size, &[group]).unwrap_err();
    assert_eq!(bad(0, Group { window: None, pages: 1 }), CacheError::BadGeometry);
    assert_eq!(bad(1, Group { window: Some(0), pages: 1 }), CacheError::BadGeometry);
    assert_eq!(bad(1, Group { window: None, pages: u32::MAX as usize }), CacheError::BadGeometry);
    let mut pages = Pages::new(4, &[Group { window: None, pages: 3 }]).unwrap();
    let id = pages.create();
    assert_eq!(pages.append(&[(id, 1), (id, 1)]), Err(CacheError::Twice(id)));
    let too_long = |positions, most| Err(CacheError::TooLong { positions, most });
    assert_eq!(pages.append(&[(id, usize::MAX)]), too_long(usize::MAX, u32::MAX as usize));
    assert_eq!(pages.fork(id, 1), Err(CacheError::PastEnd { asked: 1, len: 0 }));
    assert_eq!(pages.truncate(id, 1), Err(CacheError::PastEnd { asked: 1, len: 0 }));
    let tree = Tree::new(&[None, Some(0)]).unwrap();
    assert_eq!(pages.set_drafts(id, &tree), Err(CacheError::PastEnd { asked: 2, len: 0 }));
    assert_eq!(pages.accept(id, &[0]), Err(TreeError::NoDraft { draft: 0, drafts: 0 }.into()));
    pages.remove(id).unwrap();
    assert_eq!(pages.set_drafts(id, &tree), Err(CacheError::Unknown(id)));
    assert_eq!(pages.accept(id, &[]), Err(CacheError::Unknown(id)));
    assert_eq!(pages.truncate(id, 0), Err(CacheError::Unknown(id)));
    assert_eq!(pages.append(&[(id, 1)]), Err(CacheError::Unknown(id)));
    assert_eq!(pages.positions(id), Err(CacheError::Unknown(id)));
    let mut pages = pages.with_longest(7);
    let id = pages.create();
    pages.append(&[(id, 5)]).unwrap();
    assert_eq!(pages.append(&[(id, 3)]), too_long(8, 7));
    pages.append(&[(id, 2)]).unwrap();
    assert_eq!(pages.append(&[(id, 1)]), too_long(8, 7));
}

/// A state is what all positions of its sequence have left, and nobody else's; earlier ones are refused.
#[test]
fn states_are_those_of_the_last_position() {
    const GROUP: usize = 1;
    let mut source = Source::new(5);
    let copy_states = |copies: &[PageCopy], len: usize, memory: &mut [Vec<u64>]| {
        for copy in copies.iter().filter(|copy| copy.group == GROUP) {
            assert_eq!(copy.tokens, len);
            memory[copy.to as usize] = memory[copy.from as usize].clone();
        }
    };
    let (mut full, mut forgotten, mut shared) = (0, 0, 0);
    for _ in 0..100 {
        let states = 1 + source.below(5);
        let groups = [Group { window: None, pages: 200 }];
        let mut pages = Pages::new(4, &groups).unwrap().with_states(states).unwrap();
        let mut memory = vec![Vec::new(); states];
        let mut contents: Vec<(SequenceId, Vec<u64>)> = Vec::new();
        for step in 0..200 {
            let (count, before) = (contents.len(), pages.clone());
            match source.below(6) {
                0 => contents.push((pages.create(), Vec::new())),
                1 if count > 0 => pages.remove(contents.swap_remove(source.below(count)).0).unwrap(),
                2 | 3 if count > 0 => {
                    let i = source.below(count);
                    let (id, own) = contents[i].clone();
                    let len = [0, own.len(), source.below(own.len() + 1)][source.below(3)];
                    let (fork, kept) = (source.below(2) == 0, len == 0 || len == own.len());
                    let done = if fork { pages.fork(id, len) } else { pages.truncate(id, len).map(|()| id) };
                    match done {
                        Ok(new) if fork => {
                            contents.push((new, own[..len].to_vec()));
                            shared += usize::from(len > 0);
                        }
                        Ok(_) => contents[i].1.truncate(len),
                        Err(e) => {
                            assert_eq!(e, CacheError::Forgotten { group: GROUP, position: len });
                            assert_eq!(pages, before);
                            forgotten += 1;
                        }
                    }
                    assert_eq!(done.is_ok(), kept, "{len} of {}", own.len());
                }
                _ if count > 0 => {
                    let (i, n) = (source.below(count), 1 + source.below(9));
                    let (id, own) = &mut contents[i];
                    match pages.append(&[(*id, n)]) {
                        Ok(copies) => {
                            copy_states(&copies, own.len(), &mut memory);
                            let state = &mut memory[pages.table(*id, GROUP).unwrap()[0] as usize];
                            // In front of the first position there is no state yet.
                            state.truncate(own.len());
                            assert_eq!(state, own);
                            own.extend((0..n as u64).map(|token| step << 8 | token));
                            state.clone_from(own);
                        }
                        Err(e) => {
                            assert_eq!(e, CacheError::Full { group: GROUP, needed: 1, free: 0 });
                            assert_eq!(pages, before);
                            full += 1;
                        }
                    }
                    // A position that is counted, but not computed, is taken back.
                    let (id, own) = &contents[source.below(count)];
                    let counted = (!own.is_empty()).then(|| pages.append(&[(*id, 1)]));
                    if let Some(Ok(copies)) = counted {
                        copy_states(&copies, own.len(), &mut memory);
                        pages.retract(*id).unwrap();
                    }
                }
                _ => {}
            }
            for (id, own) in &contents {
                assert_eq!(pages.positions(*id), Ok(own.len()));
                assert_eq!(pages.table(*id, GROUP).unwrap().len(), usize::from(!own.is_empty()));
            }
            let with_states = contents.iter().filter(|c| !c.1.is_empty());
            let mut used: Vec<u32> = with_states.map(|c| pages.table(c.0, GROUP).unwrap()[0]).collect();
            used.sort_unstable();
            used.dedup();
            assert_eq!(pages.free(GROUP), states - used.len());
        }
    }
    assert!(full > 1000 && forgotten > 300 && shared > 300, "{full} {forgotten} {shared}");
    let mut pages = Pages::new(4, &[]).unwrap();
    let id = pages.create();
    assert_eq!(pages.retract(id), Err(CacheError::PastEnd { asked: 1, len: 0 }));
    assert_eq!(pages.with_states(u32::MAX as usize), Err(CacheError::BadGeometry));
}
