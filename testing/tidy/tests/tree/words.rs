//! The field's terms: words of our own that were replaced do not come back.

use asterism_tidy::{must_be_empty, sources, words};

#[test]
fn retired_words_stay_away() {
    must_be_empty(&words::left(&sources(words::ENDINGS)));
}
