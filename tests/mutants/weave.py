"""Weaves all mutants of a crate into one build.

cargo-mutants says what there is to try: a place in a file and the text to put there. It would then build the crate
and its tests anew for each. Here every function gets, in front of its own body, a copy of that body for each of its
mutants; which copy runs is asked at run time. So there is one build, and a mutant costs one run of the tests.
"""

import bisect
import re

# How a mutant is chosen, and how it is found out which functions a test reaches at all.
SWITCH = """\
//! Which mutant is awake. Woven in; no part of the crate.
use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

static AWAKE: OnceLock<u32> = OnceLock::new();
static REACH: OnceLock<Option<std::path::PathBuf>> = OnceLock::new();
static SEEN: [AtomicBool; @FUNCTIONS@] = [const { AtomicBool::new(false) }; @FUNCTIONS@];

fn number(name: &str) -> u32 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Two iterators of one type.
pub(crate) enum Either<A, B> {
    This(A),
    Other(B),
}

impl<T, A: Iterator<Item = T>, B: Iterator<Item = T>> Iterator for Either<A, B> {
    type Item = T;
    fn next(&mut self) -> Option<T> {
        match self {
            Either::This(one) => one.next(),
            Either::Other(one) => one.next(),
        }
    }
}

/// The number of the mutant that is awake, 0 for none; notes that this function was reached.
pub(crate) fn awake(function: usize) -> u32 {
    if !SEEN[function].swap(true, Ordering::Relaxed)
        && let Some(path) = REACH.get_or_init(|| std::env::var_os("MUTANT_REACH").map(Into::into))
    {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
        file.and_then(|mut file| file.write_all(format!("{function}\\n").as_bytes())).expect("the reach is written");
    }
    *AWAKE.get_or_init(|| number("MUTANT"))
}
"""

# Comments, literals and lifetimes: everything in which a brace is no brace.
OPAQUE = re.compile(
    r"""//[^\n]*|/\*.*?\*/|b?r(\#*)".*?"\1|b?"(?:[^"\\]|\\.)*"|b?'(?:[^'\\]|\\(?:x..|u\{[^}]*\}|.))'|'\w+""", re.DOTALL
)


class Source:
    """A file, and the places in it."""

    def __init__(self, text):
        self.text = text
        self.lines = [0]
        for match in re.finditer("\n", text):
            self.lines.append(match.end())
        self.plain = OPAQUE.sub(lambda match: " " * len(match.group()), text)

    def offset(self, place):
        return self.lines[place["line"] - 1] + place["column"] - 1

    def span(self, span):
        return self.offset(span["start"]), self.offset(span["end"])

    def body(self, span):
        """Where the body of the function at this span begins and ends, its braces left out."""
        start, end = self.span(span)
        assert self.plain[end - 1] == "}", self.text[start:end]
        depth = 0
        for at in range(end - 1, start - 1, -1):
            if self.plain[at] == "}":
                depth += 1
            elif self.plain[at] == "{":
                depth -= 1
                if depth == 0:
                    return at + 1, end - 1
        raise ValueError(f"no body in {self.text[start:end]}")


def placed(body, place, last):
    """One of the bodies of a function whose type is opaque: together they become one type."""
    inner = f"{{ {body} }}" if last else f"crate::mutant_switch::Either::This({{ {body} }})"
    return "crate::mutant_switch::Either::Other(" * place + inner + ")" * place


def weave(text, mutants, functions):
    """The file with its mutants in it.

    mutants: of this file, each with `id`, `span`, `replacement`, `function`. functions: the list of all functions so
    far; those of this file are added. Gives the text and [(first line, last line, id)].
    """
    source = Source(text)
    bodies = {}
    for mutant in mutants:
        bodies.setdefault(source.body(mutant["function"]["span"]), []).append(mutant)
    spans = sorted(bodies)

    def woven(begin, end):
        """The text from begin to end, with the functions in it woven; pieces are (text, id of the mutant or None)."""
        pieces, at = [], begin
        for body in spans:
            if body[0] < at or body[1] > end or body == (begin, end):
                continue
            pieces.append((source.text[at : body[0]], None))
            number = len(functions)
            functions.append((bodies[body][0]["file"], bodies[body][0]["function"]["function_name"]))
            pieces.append((f"\nmatch crate::mutant_switch::awake({number}) {{\n", None))
            opaque = bodies[body][0]["function"]["return_type"].startswith("-> impl Iterator")
            for place, mutant in enumerate(bodies[body]):
                mutant["reach"] = number
                first, last = source.span(mutant["span"])
                changed = source.text[body[0] : first] + mutant["replacement"] + source.text[last : body[1]]
                choice = placed(changed, place, False) if opaque else f"{{ {changed} }}"
                pieces.append((f"{mutant['id']} => return {choice},\n", mutant["id"]))
            pieces.append(("_ => {}\n}\n", None))
            before, after = placed("\0", len(bodies[body]), True).split("\0") if opaque else ("", "")
            pieces.extend([(before, None), *woven(*body), (after, None)])
            at = body[1]
        pieces.append((source.text[at:end], None))
        return pieces

    line, ranges, out = 1, [], []
    for piece, mutant in woven(0, len(text)):
        if mutant is not None:
            ranges.append((line, line + piece.count("\n") - 1, mutant))
        line += piece.count("\n")
        out.append(piece)
    return "".join(out), ranges


def at_line(ranges, line):
    """The mutant that a line belongs to."""
    index = bisect.bisect_right(ranges, (line, float("inf"), 0)) - 1
    if index >= 0 and ranges[index][0] <= line <= ranges[index][1]:
        return ranges[index][2]
    return None
