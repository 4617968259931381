//! Who may do what: bearer tokens (RFC 6750), and which routes an address has.

use super::PlainState;
use super::error::Failure;
use super::rate::RateState;
use super::routes::{Action, Operation};
use super::tokens::{Table, Token, Tokens, Verb};
use http1::request::Head;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// The name of the field, and of the scheme in its value.
const AUTHORIZATION: &str = "authorization";
const BEARER: &[u8] = b"bearer ";
/// For how long a token is not looked at again: clocks may be set.
const CHECKED_MAX: Duration = Duration::from_secs(1);

/// Of a connection: the token that was accepted last.
#[derive(Default)]
pub(super) struct Access(Option<Box<Accepted>>);

struct Accepted {
    /// The field that it came in.
    field: Box<[u8]>,
    token: Arc<Token>,
    /// Of the tokens' file.
    generation: u64,
    until: Instant,
}

impl Access {
    /// Admits what a request asks for, or makes it why not. `rate` becomes what is left to the token, if it has a rate.
    pub(super) fn admit<K: AsRef<[u8]>>(
        &mut self,
        state: &PlainState,
        head: &Head<'_, '_>,
        arrived: Instant,
        rate: &mut Option<Box<RateState>>,
        routed: &mut Result<Action<K>, Failure>,
    ) {
        let is_here = match routed {
            Ok(Action::Page(page)) => state.has_pages || page.is_everywhere,
            Ok(_) => state.has_values,
            Err(_) => true,
        };
        if !is_here {
            let what = match state.has_values {
                true => "no such route at this address; pages about the server are at that of --ops-listen",
                false => "no such route at this address; values are at that of --listen",
            };
            *routed = Err(Failure::new(404, "no_route", what));
        }
        let Some(tokens) = state.tokens.as_deref() else { return };
        if let Ok(Action::Page(page)) = routed
            && let Some(public) = page.public
        {
            page.show = public;
            return;
        }
        if let Err(failure) = self.check(tokens, head, arrived, rate, routed.as_ref().ok()) {
            *routed = Err(failure);
        }
    }

    /// Whether the token of a request allows what it asks for, if that is known.
    fn check<K: AsRef<[u8]>>(
        &mut self,
        tokens: &Tokens,
        head: &Head<'_, '_>,
        arrived: Instant,
        rate: &mut Option<Box<RateState>>,
        action: Option<&Action<K>>,
    ) -> Result<(), Failure> {
        self.look_up(tokens, Some(authorization(head)?), arrived)?;
        if let Some(limiter) = self.0.as_ref().and_then(|accepted| accepted.token.limiter.as_ref()) {
            let state = rate.insert(Box::new(limiter.take(arrived)));
            if !state.is_within {
                let what = format!("the token has used up its rate; ask again in {} s", state.reset);
                let failure = Failure::new(429, "rate_limited", what);
                return Err(failure.with("Retry-After", state.reset.to_string()));
            }
        }
        match action {
            // What was wrong with it is the answer.
            None => Ok(()),
            Some(action) => self.permit_action(action),
        }
    }

    /// Accepts the token in `field`, or the one that was accepted last, unless it need not be looked up again.
    fn look_up(&mut self, tokens: &Tokens, field: Option<&[u8]>, now: Instant) -> Result<(), Failure> {
        let generation = tokens.0.generation();
        let is_known = |accepted: &Accepted| {
            accepted.generation == generation
                && now < accepted.until
                && field.is_none_or(|field| is_same(&accepted.field, field))
        };
        let accepted = self.0.as_deref();
        if !accepted.is_some_and(is_known) {
            let field = field.or(accepted.map(|accepted| &*accepted.field)).unwrap_or_default();
            let (token, until) = accept(&tokens.0.current(), field, now)?;
            self.0 = Some(Box::new(Accepted { field: field.into(), token, generation, until }));
        }
        Ok(())
    }

    /// Whether the token of a request that was admitted, and takes long, still allows it: it may have ended or been withdrawn.
    pub(super) fn still_permits(
        &mut self,
        state: &PlainState,
        verb: Verb,
        key: &[u8],
    ) -> Result<(), Failure> {
        if let Some(tokens) = &state.tokens {
            self.look_up(tokens, None, Instant::now())?;
        }
        self.permit(verb, key)
    }

    /// The same of an operation whose body took its time.
    pub(super) fn still_permits_action<K: AsRef<[u8]>>(
        &mut self,
        state: &PlainState,
        action: &Action<K>,
    ) -> Result<(), Failure> {
        let is_of_data = matches!(action, Action::Data { .. } | Action::Batch { .. } | Action::List(_));
        match &state.tokens {
            Some(tokens) if is_of_data => {
                self.look_up(tokens, None, Instant::now())?;
                self.permit_action(action)
            }
            _ => Ok(()),
        }
    }

    fn permit_action<K: AsRef<[u8]>>(&self, action: &Action<K>) -> Result<(), Failure> {
        match action {
            Action::Data { key, operation, .. } => {
                let verb = match operation {
                    Operation::Get(_) => Verb::Read,
                    Operation::Write(..) => Verb::Write,
                };
                self.permit(verb, key.as_ref())
            }
            Action::List(query) => {
                let listed = self.permit(Verb::List, &query.prefix);
                if query.with_values {
                    listed.and_then(|()| self.permit(Verb::Read, &query.prefix))
                } else {
                    listed
                }
            }
            Action::Watch(query) => self.permit(Verb::Watch, &query.prefix),
            // Each of its lines is looked at later.
            Action::Batch { .. } => self.permit_all(Verb::Read).or_else(|_| self.permit_all(Verb::Write)),
            Action::Page(_) | Action::Lab(_) => self.permit_all(Verb::Admin),
        }
    }

    /// Whether the token of the last request allows this with a key, or with all keys that have this prefix. Without tokens
    /// everything is allowed.
    pub(super) fn permit(&self, verb: Verb, key: &[u8]) -> Result<(), Failure> {
        self.permit_all(verb)?;
        match self.0.as_deref() {
            Some(Accepted { token, .. }) if !token.covers(key) => {
                let what =
                    format!("the token {:?} is only for keys that begin with {:?}", token.name, token.prefix);
                let challenge = "Bearer realm=\"weir\", error=\"insufficient_scope\"";
                Err(Failure::new(403, "forbidden_key", what).with("WWW-Authenticate", challenge))
            }
            _ => Ok(()),
        }
    }

    /// The same for what has no key.
    fn permit_all(&self, verb: Verb) -> Result<(), Failure> {
        match self.0.as_deref() {
            Some(Accepted { token, .. }) if !token.has(verb) => {
                let verb = verb.as_str();
                let what = format!("the token {:?} does not have the verb {verb}", token.name);
                let challenge =
                    format!("Bearer realm=\"weir\", error=\"insufficient_scope\", scope=\"{verb}\"");
                Err(Failure::new(403, "forbidden_verb", what).with("WWW-Authenticate", challenge))
            }
            _ => Ok(()),
        }
    }
}

/// The field `Authorization`.
fn authorization<'b>(head: &Head<'_, 'b>) -> Result<&'b [u8], Failure> {
    let mut found = head.fields().filter(|(name, _)| name.eq_ignore_ascii_case(AUTHORIZATION));
    match (found.next(), found.next()) {
        (Some((_, field)), None) => Ok(field),
        (None, _) => Err(unauthorized(None, "send a token, as in Authorization: Bearer TOKEN")),
        (Some(_), Some(_)) => {
            let challenge = "Bearer realm=\"weir\", error=\"invalid_request\"";
            let failure = Failure::new(400, "bad_header", "there are two Authorization fields; send one");
            Err(failure.with("WWW-Authenticate", challenge))
        }
    }
}

/// Looks a token up; with it, until when that need not be done again.
fn accept(tokens: &Table, field: &[u8], arrived: Instant) -> Result<(Arc<Token>, Instant), Failure> {
    let split = field.split_at_checked(BEARER.len());
    let Some((_, token)) = split.filter(|(scheme, _)| scheme.eq_ignore_ascii_case(BEARER)) else {
        return Err(unauthorized(None, "the scheme of Authorization is not Bearer"));
    };
    let Some(token) = tokens.find(token.trim_ascii()) else {
        return Err(unauthorized(Some("the token is not known"), "the token is not known"));
    };
    let left = token.valid_for(SystemTime::now()).unwrap_or(CHECKED_MAX);
    if left.is_zero() {
        return Err(unauthorized(
            Some("the token has expired"),
            format!("the token {:?} has expired", token.name),
        ));
    }
    Ok((Arc::clone(token), arrived + left.min(CHECKED_MAX)))
}

/// In a time that does not depend on where they differ: others may use the same connection through a proxy.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len()
        && one.iter().zip(other).fold(0, |so_far, (one, other)| so_far | (one ^ other)) == 0
}

/// `error` is why a token was refused; there is none where none was sent.
fn unauthorized(error: Option<&'static str>, what: impl Into<std::borrow::Cow<'static, str>>) -> Failure {
    let challenge = match error {
        None => "Bearer realm=\"weir\"".to_owned(),
        Some(why) => {
            format!("Bearer realm=\"weir\", error=\"invalid_token\", error_description=\"{why}\"")
        }
    };
    Failure::new(401, "unauthorized", what).with("WWW-Authenticate", challenge)
}
