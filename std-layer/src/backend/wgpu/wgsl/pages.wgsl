// Where pages lie is in `step`: for each row its place in its run, and its run; for each run, the numbers of its pages.
fn page_of(run: u32, place: u32) -> u32 {
    return step[a.table_at + run * a.table_len + place / PAGE];
}
