//! Typo correction: the word that the user probably meant, for "did you mean".

/// Returns the nearest candidate, at a distance of at most a third of the letters (at least one, but not all) of `word`, or of the
/// candidate if that is longer.
pub(crate) fn nearest<'a>(
    word: &str,
    candidates: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    let near = candidates.filter_map(|candidate| {
        let longer = word.chars().count().max(candidate.chars().count());
        let distance = distance(word, candidate);
        (distance <= longer.max(3) / 3 && distance < longer).then_some((distance, candidate))
    });
    near.min_by_key(|(distance, _)| *distance).map(|(_, candidate)| candidate)
}

/// Counts the insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replace = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replace.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_is_within_typing_distance() {
        let near = |word| nearest(word, ["id", "order_id", "b"].into_iter());
        assert_eq!(near("idd"), Some("id"));
        assert_eq!(near("di"), Some("id"));
        assert_eq!(near("ordre_id"), Some("order_id"));
        assert_eq!(near("a"), None);
        assert_eq!(near("customer"), None);
    }
}
