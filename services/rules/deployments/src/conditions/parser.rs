//! From tokens to an expression.

use serde_json::Value;

use super::lexer::{Kind, Token};
use crate::fault::Fault;

/// Deepest nesting of parentheses and `not`.
const MAX_DEPTH: usize = 200;

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub enum Expression {
    /// A value.
    Scalar(Value),
    /// A value of a model.
    Path(String),
    /// A question to the deployment.
    Api(String, Vec<Expression>),
    /// `not`.
    Not(Box<Expression>),
    /// Two with a word between.
    Two(Box<Expression>, &'static str, Box<Expression>),
}

/// How tight a word binds; all of them to the left.
fn level(word: &str) -> Option<u8> {
    match word {
        "or" => Some(1),
        "and" => Some(2),
        "==" | "!=" | "<" | ">" | "<=" | ">=" => Some(3),
        "in" => Some(TIGHTEST),
        _ => None,
    }
}

const TIGHTEST: u8 = 4;

/// Reads all tokens as one expression.
pub fn parse(tokens: &[Token], text: &str) -> Result<Expression, Fault> {
    let mut parser = Parser { tokens, text, at: 0, depth: 0 };
    let expression = parser.expression(0)?;
    match parser.peek() {
        None => Ok(expression),
        Some(_) => Err(parser.unexpected()),
    }
}

struct Parser<'t> {
    tokens: &'t [Token],
    text: &'t str,
    at: usize,
    depth: usize,
}

impl<'t> Parser<'t> {
    fn peek(&self) -> Option<&'t Token> {
        self.tokens.get(self.at)
    }

    fn unexpected(&self) -> Fault {
        let (said, byte) = self.peek().map_or((String::new(), self.text.len()), |token| (token.said(), token.at));
        Fault::Syntax { said, column: self.text.get(..byte).map_or(0, |before| before.chars().count()) + 1 }
    }

    fn takes(&mut self, word: &str) -> bool {
        let there = matches!(self.peek(), Some(Token { kind: Kind::Word(found), .. }) if *found == word);
        self.at += usize::from(there);
        there
    }

    fn expression(&mut self, at_least: u8) -> Result<Expression, Fault> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Fault::Invalid(format!("a condition is nested deeper than {MAX_DEPTH}")));
        }
        let mut left = self.operand()?;
        while let Some(Token { kind: Kind::Word(word), .. }) = self.peek() {
            let Some(level) = level(word).filter(|level| *level >= at_least.max(1)) else { break };
            self.at += 1;
            let right = self.expression(level + 1)?;
            left = Expression::Two(Box::new(left), word, Box::new(right));
        }
        self.depth -= 1;
        Ok(left)
    }

    fn operand(&mut self) -> Result<Expression, Fault> {
        if self.takes("not") {
            return Ok(Expression::Not(Box::new(self.expression(TIGHTEST + 1)?)));
        }
        if self.takes("(") {
            let inner = self.expression(0)?;
            return if self.takes(")") { Ok(inner) } else { Err(self.unexpected()) };
        }
        let Some(token) = self.peek() else { return Err(self.unexpected()) };
        let operand = match &token.kind {
            Kind::Scalar(value) => Expression::Scalar(value.clone()),
            Kind::Path(path) => Expression::Path(path.clone()),
            Kind::Api(name) => {
                self.at += 1;
                let arguments = if self.takes("(") { self.arguments()? } else { Vec::new() };
                return Ok(Expression::Api(name.clone(), arguments));
            }
            Kind::Word(_) => return Err(self.unexpected()),
        };
        self.at += 1;
        Ok(operand)
    }

    fn arguments(&mut self) -> Result<Vec<Expression>, Fault> {
        let mut arguments = Vec::new();
        while !self.takes(")") {
            if !arguments.is_empty() && !self.takes(",") {
                return Err(self.unexpected());
            }
            arguments.push(self.expression(0)?);
        }
        Ok(arguments)
    }
}
