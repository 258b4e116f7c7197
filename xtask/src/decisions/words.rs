//! The words of a Rust source file with their lines: names, texts and signs. Comments are left out. Just enough for the lint
//! of decisions; not a parser.

/// A word of a source file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// A name, keyword or number.
    Name(String),
    /// The content of a text literal.
    Text(String),
    /// Anything else, character by character.
    Sign(char),
}

impl Word {
    /// Whether it is this name.
    pub fn is_name(&self, name: &str) -> bool {
        matches!(self, Self::Name(word) if word == name)
    }

    /// Whether it is about the reason of a condition: `reason`, `ready_reason`, `["reason"]`.
    pub fn is_reason(&self) -> bool {
        match self {
            Self::Name(word) => word == "reason" || word.ends_with("_reason"),
            Self::Text(text) => text == "reason" || text.ends_with("/reason"),
            Self::Sign(_) => false,
        }
    }

    /// Whether it is a text that could be the word of a reason.
    pub fn is_other_text(&self) -> bool {
        matches!(self, Self::Text(text) if text.starts_with(|first: char| first.is_ascii_uppercase()))
    }
}

/// A word and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub word: Word,
    pub line: usize,
}

/// The words of a source file.
pub fn read(source: &str) -> Vec<Token> {
    let mut reader = Reader { rest: source, line: 1, tokens: Vec::new() };
    while reader.step() {}
    reader.tokens
}

struct Reader<'a> {
    rest: &'a str,
    line: usize,
    tokens: Vec<Token>,
}

impl Reader<'_> {
    fn step(&mut self) -> bool {
        let Some(first) = self.rest.chars().next() else { return false };
        if self.rest.starts_with("//") {
            self.skip(self.rest.find('\n').unwrap_or(self.rest.len()));
        } else if self.rest.starts_with("/*") {
            self.skip(comment_length(self.rest));
        } else if let Some((start, end, length)) = text(self.rest) {
            let word = Word::Text(self.rest[start..end].to_owned());
            self.push(word, length);
        } else if first == '\'' {
            // A character, or a lifetime: a lifetime has no closing mark soon.
            let length = character_length(self.rest);
            self.skip(length);
        } else if first.is_alphanumeric() || first == '_' {
            let end = self.rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(self.rest.len());
            self.push(Word::Name(self.rest[..end].to_owned()), end);
        } else if first.is_whitespace() {
            self.skip(first.len_utf8());
        } else {
            self.push(Word::Sign(first), first.len_utf8());
        }
        true
    }

    fn push(&mut self, word: Word, length: usize) {
        self.tokens.push(Token { word, line: self.line });
        self.skip(length);
    }

    fn skip(&mut self, length: usize) {
        let (over, rest) = self.rest.split_at(length);
        self.line += over.matches('\n').count();
        self.rest = rest;
    }
}

fn comment_length(source: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < source.len() {
        if source[at..].starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if source[at..].starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += source[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    source.len()
}

/// A text literal at the beginning: where its content starts and ends, and how long all of it is.
fn text(source: &str) -> Option<(usize, usize, usize)> {
    let plain = source.strip_prefix(['b', 'c']).unwrap_or(source);
    let prefix = source.len() - plain.len();
    if let Some(raw) = plain.strip_prefix('r') {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if raw[hashes..].starts_with('"') {
            let start = prefix + 1 + hashes + 1;
            let close = format!("\"{}", "#".repeat(hashes));
            let end = source[start..].find(&close).map_or(source.len(), |at| start + at);
            return Some((start, end, (end + close.len()).min(source.len())));
        }
    }
    if !plain.starts_with('"') {
        return None;
    }
    let start = prefix + 1;
    let mut escaped = false;
    for (at, c) in source[start..].char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Some((start, start + at, start + at + 1)),
            _ => {}
        }
    }
    Some((start, source.len(), source.len()))
}

fn character_length(source: &str) -> usize {
    let mut rest = source.char_indices().skip(1);
    match rest.next() {
        Some((_, '\\')) => {
            let escaped = rest.next().map_or(source.len(), |(at, c)| at + c.len_utf8());
            source[escaped..].find('\'').map_or(source.len(), |at| escaped + at + 1)
        }
        Some((at, c)) if source[at + c.len_utf8()..].starts_with('\'') => at + c.len_utf8() + 1,
        _ => 1,
    }
}

/// The words without what is compiled for tests only.
pub fn without_tests(tokens: &[Token]) -> Vec<Token> {
    let is_test = |at: usize| {
        let names = ["cfg", "test"].map(|name| Word::Name(name.to_owned()));
        let wanted = [
            Word::Sign('#'),
            Word::Sign('['),
            names[0].clone(),
            Word::Sign('('),
            names[1].clone(),
            Word::Sign(')'),
            Word::Sign(']'),
        ];
        tokens[at..].iter().map(|token| &token.word).take(wanted.len()).eq(wanted.iter())
    };
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if is_test(at) {
            at = end_of_item(tokens, at);
        } else {
            kept.push(tokens[at].clone());
            at += 1;
        }
    }
    kept
}

/// Behind the item at `at`: its closing brace, or its semicolon.
fn end_of_item(tokens: &[Token], at: usize) -> usize {
    let mut depth = 0_usize;
    for (place, token) in tokens.iter().enumerate().skip(at) {
        match token.word {
            Word::Sign('{') => depth += 1,
            Word::Sign('}') => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return place + 1;
                }
            }
            Word::Sign(';') if depth == 0 => return place + 1,
            _ => {}
        }
    }
    tokens.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(source: &str) -> Vec<(String, usize)> {
        let named = |token: &Token| match &token.word {
            Word::Name(name) => Some((name.clone(), token.line)),
            _ => None,
        };
        read(source).iter().filter_map(named).collect()
    }

    #[test]
    fn comments_texts_and_characters_are_no_names() {
        let source = "a // b\n/* c /* d */ e */ f \"g \\\" h\" 'i' '\\'' r#\"j \" k\"# b\"l\" 'm n";
        let found: Vec<_> = names(source).into_iter().map(|(name, _)| name).collect();
        assert_eq!(found, ["a", "f", "m", "n"]);
        assert_eq!(names("a\n\"x\ny\"\nb"), [("a".to_owned(), 1), ("b".to_owned(), 4)]);
    }

    #[test]
    fn what_is_compiled_for_tests_only_is_left_out() {
        let source = "a; #[cfg(test)] mod tests; b; #[cfg(test)] mod more { c { d } e } f";
        let left: Vec<_> = without_tests(&read(source))
            .into_iter()
            .filter_map(|token| if let Word::Name(name) = token.word { Some(name) } else { None })
            .collect();
        assert_eq!(left, ["a", "b", "f"]);
    }
}
