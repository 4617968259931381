//! How an agent and its coordinator prove to each other that they hold the same token, without ever sending it.
//!
//! Each draws a nonce and sends it. Each then sends HMAC-SHA256, under the token, of its own role, the protocol and both
//! nonces. A proof is good for one role of one conversation: it can be neither sent back nor replayed.

use super::PROTOCOL;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;
use std::io::Read;
use std::path::Path;

/// Shorter ones could be guessed from a proof that somebody overheard.
const TOKEN_BYTES_MIN: usize = 16;
/// What is longer is another file.
const TOKEN_BYTES_MAX: usize = 1024;
const NONCE_BYTES: usize = 32;

/// A secret that agents and their coordinators share: at least 16 characters.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// A token as it stands in a file or in the environment; blanks and line ends around it do not count.
    ///
    /// `Err` is one line, the remedy behind a semicolon.
    pub fn new(text: &str) -> Result<Token, String> {
        const REMEDY: &str = "make one with `head -c 24 /dev/urandom | base64`";
        let text = text.trim();
        if text.is_empty() {
            return Err(format!("the token is empty; {REMEDY}"));
        }
        if text.len() < TOKEN_BYTES_MIN {
            return Err(format!("the token is shorter than {TOKEN_BYTES_MIN} characters; {REMEDY}"));
        }
        if text.len() > TOKEN_BYTES_MAX || text.contains(char::is_control) {
            return Err(format!("the token is not one line of up to {TOKEN_BYTES_MAX} characters; {REMEDY}"));
        }
        Ok(Token(text.to_owned()))
    }

    /// The token in a file of its own.
    pub fn of_file(path: &Path) -> Result<Token, String> {
        let cannot = |why: String| {
            format!("cannot read the token in {}: {why}; write it into that file, alone", path.display())
        };
        let file = std::fs::File::open(path).map_err(|error| cannot(super::super::plainly(&error)))?;
        let mut text = String::new();
        // Of a long file, as much as shows that it is none.
        let read = file.take(2 * TOKEN_BYTES_MAX as u64).read_to_string(&mut text);
        read.map_err(|error| cannot(super::super::plainly(&error)))?;
        Token::new(&text).map_err(|why| format!("{}: {why}", path.display()))
    }

    /// What the holder of this token says in `role` when these two nonces were drawn.
    pub(super) fn prove(&self, role: Role, nonces: Nonces<'_>) -> String {
        hex(&self.mac(role, nonces).finalize().into_bytes())
    }

    /// Whether `proof` is what the holder of this token says in `role`. Takes as long for one that is nearly right.
    pub(super) fn holds(&self, role: Role, nonces: Nonces<'_>, proof: &str) -> bool {
        let Some(proof) = bytes(proof) else { return false };
        is_nonce(nonces.agent)
            && is_nonce(nonces.coordinator)
            && self.mac(role, nonces).verify_slice(&proof).is_ok()
    }

    fn mac(&self, role: Role, nonces: Nonces<'_>) -> Hmac<Sha256> {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(self.0.as_bytes()).expect("HMAC takes keys of any length");
        let Nonces { agent, coordinator } = nonces;
        // All fields but the last have fixed lengths or no blank in them, so no two conversations read alike.
        mac.update(format!("weir {PROTOCOL} {} {agent} {coordinator}", role.name()).as_bytes());
        mac
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Who proves something.
#[derive(Clone, Copy, Debug)]
pub(super) enum Role {
    Agent,
    Coordinator,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Role::Agent => "agent",
            Role::Coordinator => "coordinator",
        }
    }
}

/// What both ends drew for this conversation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nonces<'a> {
    pub(super) agent: &'a str,
    pub(super) coordinator: &'a str,
}

/// A number that nobody has seen before and nobody could have told, in hexadecimal digits.
pub(super) fn nonce() -> std::io::Result<String> {
    let mut drawn = [0; NONCE_BYTES];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut drawn)?;
    Ok(hex(&drawn))
}

/// Whether it looks like one. What does not is never proved: its sender could choose what the proof is of.
pub(super) fn is_nonce(text: &str) -> bool {
    text.len() == 2 * NONCE_BYTES && bytes(text).is_some()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    let digit = |sign: u8| char::from(sign).to_digit(16).filter(|_| !sign.is_ascii_uppercase());
    let pairs = hex.as_bytes().chunks(2);
    pairs.map(|pair| Some((digit(pair[0])? * 16 + digit(*pair.get(1)?)?) as u8)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(text: &str) -> Token {
        Token::new(text).unwrap()
    }

    #[test]
    fn a_proof_is_good_for_one_token_one_role_and_one_pair_of_nonces() {
        let (ours, theirs) = (token("0123456789abcdef"), token("0123456789abcdeF"));
        let drawn: Vec<String> = (0..3).map(|_| nonce().unwrap()).collect();
        let nonces = Nonces { agent: &drawn[0], coordinator: &drawn[1] };
        let proof = ours.prove(Role::Agent, nonces);
        assert!(ours.holds(Role::Agent, nonces, &proof));
        assert!(!theirs.holds(Role::Agent, nonces, &proof));
        assert!(!ours.holds(Role::Coordinator, nonces, &proof));
        assert!(!ours.holds(Role::Agent, Nonces { agent: &drawn[2], ..nonces }, &proof));
        assert!(!ours.holds(Role::Agent, Nonces { coordinator: &drawn[2], ..nonces }, &proof));
        for wrong in ["", "0", "zz", &proof[..62], &format!("{proof}00"), "ä"] {
            assert!(!ours.holds(Role::Agent, nonces, wrong), "{wrong}");
        }
    }

    #[test]
    fn the_proof_is_hmac_sha_256() {
        // By another implementation: printf 'weir 1 agent 00…00 11…11' | openssl dgst -sha256 -hmac 0123456789abcdef
        let (agent, coordinator) = ("0".repeat(64), "1".repeat(64));
        let nonces = Nonces { agent: &agent, coordinator: &coordinator };
        let proof = token("0123456789abcdef").prove(Role::Agent, nonces);
        assert_eq!(proof, "83aee3defa186a5995a73f27ff300e0cc34fc28c4c2785d17b715e2b72986b51");
    }

    #[test]
    fn no_nonce_comes_twice_and_what_is_none_is_seen() {
        let (one, other) = (nonce().unwrap(), nonce().unwrap());
        assert!(one != other && is_nonce(&one) && is_nonce(&other));
        for wrong in ["", "0", &one[1..], &format!("{one}0"), &one.replace(|_| true, "g"), &"A".repeat(64)] {
            assert!(!is_nonce(wrong), "{wrong}");
        }
    }

    #[test]
    fn tokens_are_long_enough_and_never_shown() {
        for (text, why) in [
            ("", "empty"),
            (" \n", "empty"),
            ("0123456789abcde", "shorter than 16"),
            ("0123456789abcde\n\n", "shorter than 16"),
            ("0123456789\nabcdef", "not one line"),
            (&"x".repeat(1025), "not one line"),
        ] {
            let told = Token::new(text).unwrap_err();
            assert!(told.contains(why) && told.contains("; ") && !told.contains('\n'), "{text}: {told}");
        }
        assert_eq!(format!("{:?}", token("0123456789abcdef\n")), "Token(…)");
    }
}
