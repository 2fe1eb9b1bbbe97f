//! Signatures: Ed25519 over DSSE's pre-authentication encoding, with keys that stock tools read.
//!
//! The key's id is the one that securesystemslib computes, so that its verifiers find the key by it.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use countersign_model::{Digest, KeyAnnounced, KeySignature, TaskId};
use ed25519_dalek::{Signature, Signer as _, VerifyingKey};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What receipts are, for DSSE.
pub const RECEIPT_TYPE: &str = "application/vnd.in-toto+json";
/// What signed heads of the ledger are.
pub const HEAD_TYPE: &str = "application/vnd.countersign.head+json";

/// The fixed beginning of an Ed25519 public key in X.509's form: an algorithm, and that 32 bytes follow.
const SPKI: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// `DSSEv1 <length> <type> <length> <body>`: what is really signed, so that no type can pass for another.
fn encoded(kind: &str, body: &[u8]) -> Vec<u8> {
    let mut out = format!("DSSEv1 {} {kind} {} ", kind.len(), body.len()).into_bytes();
    out.extend_from_slice(body);
    out
}

/// The secret half. Never printed, never logged.
pub struct SigningKey {
    inner: ed25519_dalek::SigningKey,
    public: PublicKey,
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", self.public.id)
    }
}

impl SigningKey {
    #[must_use]
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        let inner = ed25519_dalek::SigningKey::from_bytes(seed);
        let public = PublicKey::new(inner.verifying_key());
        Self { inner, public }
    }

    #[must_use]
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    #[must_use]
    pub fn sign(&self, kind: &str, body: &[u8]) -> [u8; 64] {
        self.inner.sign(&encoded(kind, body)).to_bytes()
    }

    /// Says that what a task left was removed, and that this is its receipt.
    #[must_use]
    pub fn expiry(&self, task: TaskId, receipt: Digest) -> KeySignature {
        let signature = self.inner.sign(&expiry(task, receipt)).to_bytes();
        KeySignature { key: self.public.id, signature: STANDARD.encode(signature) }
    }

    /// Speaks for another key.
    #[must_use]
    pub fn announce(&self, other: &PublicKey) -> KeyAnnounced {
        let signature = self.inner.sign(&announcement(other.id, self.public.id)).to_bytes();
        KeyAnnounced {
            key: other.id,
            public: other.bytes(),
            by: Some(self.public.id),
            signature: Some(STANDARD.encode(signature)),
        }
    }
}

fn expiry(task: TaskId, receipt: Digest) -> Vec<u8> {
    format!("countersign.expired.v1:{task}:{receipt}").into_bytes()
}

fn announcement(key: Digest, by: Digest) -> Vec<u8> {
    format!("countersign.key.v1:{key}:{by}").into_bytes()
}

/// The public half, and what it is called.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey {
    id: Digest,
    inner: VerifyingKey,
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({})", self.id)
    }
}

impl PublicKey {
    fn new(inner: VerifyingKey) -> Self {
        let public = Digest::from_bytes(inner.to_bytes());
        let named = format!(r#"{{"keytype":"ed25519","keyval":{{"public":"{public}"}},"scheme":"ed25519"}}"#);
        Self { id: Digest::sha256(&[named.as_bytes()]), inner }
    }

    pub fn from_bytes(bytes: &Digest) -> Option<Self> {
        VerifyingKey::from_bytes(bytes.as_bytes()).ok().map(Self::new)
    }

    #[must_use]
    pub fn id(&self) -> Digest {
        self.id
    }

    #[must_use]
    pub fn bytes(&self) -> Digest {
        Digest::from_bytes(self.inner.to_bytes())
    }

    /// As `openssl` wants it.
    #[must_use]
    pub fn pem(&self) -> String {
        let der = [SPKI.as_slice(), &self.inner.to_bytes()].concat();
        format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", STANDARD.encode(der))
    }

    /// Reads what [`PublicKey::pem`] writes.
    #[must_use]
    pub fn from_pem(text: &str) -> Option<Self> {
        let body = text.split_once("-----BEGIN PUBLIC KEY-----")?.1.split_once("-----END PUBLIC KEY-----")?.0;
        let der = STANDARD.decode(body.split_whitespace().collect::<String>()).ok()?;
        let bytes: [u8; 32] = der.strip_prefix(SPKI.as_slice())?.try_into().ok()?;
        Self::from_bytes(&Digest::from_bytes(bytes))
    }

    #[must_use]
    pub fn verifies(&self, kind: &str, body: &[u8], signature: &[u8]) -> bool {
        self.verifies_bytes(&encoded(kind, body), signature)
    }

    fn verifies_bytes(&self, bytes: &[u8], signature: &[u8]) -> bool {
        Signature::from_slice(signature).is_ok_and(|s| self.inner.verify_strict(bytes, &s).is_ok())
    }

    /// Whether this key says that what this task left was removed.
    #[must_use]
    pub fn says_expired(&self, task: TaskId, receipt: Digest, word: &KeySignature) -> bool {
        let signature = STANDARD.decode(&word.signature);
        word.key == self.id && signature.is_ok_and(|s| self.verifies_bytes(&expiry(task, receipt), &s))
    }

    /// Whether this key speaks for the one that is announced.
    #[must_use]
    pub fn speaks_for(&self, announced: &KeyAnnounced) -> bool {
        let signature = announced.signature.as_ref().and_then(|s| STANDARD.decode(s).ok());
        announced.by == Some(self.id)
            && signature.is_some_and(|s| self.verifies_bytes(&announcement(announced.key, self.id), &s))
    }
}

/// A DSSE v1 envelope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    #[serde(rename = "payloadType")]
    pub payload_type: String,
    pub payload: String,
    pub signatures: Vec<EnvelopeSignature>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvelopeSignature {
    pub keyid: String,
    pub sig: String,
}

impl Envelope {
    #[must_use]
    pub fn new(kind: &str, body: &str, key: Digest, signature: &[u8]) -> Self {
        let signature = EnvelopeSignature { keyid: key.to_string(), sig: STANDARD.encode(signature) };
        Self { payload_type: kind.to_owned(), payload: STANDARD.encode(body), signatures: vec![signature] }
    }

    /// The payload and the signature of this kind of envelope, without having checked it.
    pub fn open(&self, kind: &str) -> Result<(String, Digest, Vec<u8>), String> {
        if self.payload_type != kind {
            let shown: String = self.payload_type.chars().take(80).collect();
            return Err(format!("it holds {shown}, not {kind}"));
        }
        let [signature] = self.signatures.as_slice() else {
            return Err(format!("it has {} signatures, not one", self.signatures.len()));
        };
        let payload = STANDARD.decode(&self.payload).map_err(|e| format!("its payload is not base64: {e}"))?;
        let payload = String::from_utf8(payload).map_err(|_| "its payload is not text".to_owned())?;
        let key = Digest::parse(&signature.keyid).ok_or("its keyid is not 64 hex digits")?;
        let sig = STANDARD.decode(&signature.sig).map_err(|e| format!("its signature is not base64: {e}"))?;
        Ok((payload, key, sig))
    }

    #[must_use]
    pub fn json(&self) -> String {
        serde_json::to_string(self).expect("envelopes have string keys")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8) -> SigningKey {
        SigningKey::from_seed(&[n; 32])
    }

    #[test]
    fn what_is_signed_verifies_and_nothing_else_does() {
        let (key, other) = (key(1), key(2));
        let signature = key.sign(RECEIPT_TYPE, b"body");
        assert!(key.public().verifies(RECEIPT_TYPE, b"body", &signature));
        assert!(!key.public().verifies(RECEIPT_TYPE, b"bodz", &signature));
        assert!(!key.public().verifies(HEAD_TYPE, b"body", &signature));
        assert!(!other.public().verifies(RECEIPT_TYPE, b"body", &signature));
        assert!(!key.public().verifies(RECEIPT_TYPE, b"body", &signature[..63]));
    }

    #[test]
    fn a_public_key_reads_back_from_pem() {
        let key = key(3);
        assert_eq!(PublicKey::from_pem(&key.public().pem()).as_ref(), Some(key.public()));
        assert_eq!(PublicKey::from_pem("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"), None);
        assert_eq!(PublicKey::from_pem("nothing"), None);
    }

    #[test]
    fn a_key_speaks_for_the_next_one_only() {
        let (old, new, third) = (key(4), key(5), key(6));
        let mut said = old.announce(new.public());
        assert!(old.public().speaks_for(&said));
        assert!(!third.public().speaks_for(&said));
        said.key = third.public().id();
        assert!(!old.public().speaks_for(&said));
    }

    #[test]
    fn an_envelope_gives_back_what_it_holds() {
        let key = key(7);
        let envelope = Envelope::new(HEAD_TYPE, "{}", key.public().id(), &key.sign(HEAD_TYPE, b"{}"));
        let read: Envelope = serde_json::from_str(&envelope.json()).unwrap();
        let (payload, id, signature) = read.open(HEAD_TYPE).unwrap();
        assert_eq!((payload.as_str(), id), ("{}", key.public().id()));
        assert!(key.public().verifies(HEAD_TYPE, b"{}", &signature));
        assert!(read.open(RECEIPT_TYPE).is_err());
    }
}
