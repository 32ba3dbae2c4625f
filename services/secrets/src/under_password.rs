//! Private keys under a password, as Zuul keeps and exports them: OpenSSL's traditional PEM (`RSA PRIVATE KEY` with
//! `DEK-Info`), AES-CBC, its key made of the password by one round of MD5.
//!
//! One round is next to nothing: who has such a text can try very many passwords, so the password has to be long and
//! random. Nothing of gatelog's own is kept like this.

use aes::cipher::block_padding::Pkcs7;
use aes::cipher::{BlockModeDecrypt, BlockModeEncrypt, KeyIvInit};
use aes::{Aes128, Aes192, Aes256};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest, Md5};
use rsa::RsaPrivateKey;
use rsa::pkcs1::{DecodeRsaPrivateKey, EncodeRsaPrivateKey};

use crate::cipher::{Plaintext, random};
use crate::error::KeyringError;
use crate::project_key::{self, LONGEST_PEM};

const BEGIN: &str = "-----BEGIN RSA PRIVATE KEY-----";
const END: &str = "-----END RSA PRIVATE KEY-----";
/// The block of AES in bytes, which is the length of what is drawn for each text.
const BLOCK: usize = 16;
/// How many bytes of that go into the key.
const SALT: usize = 8;
/// The longest password in bytes.
const LONGEST: usize = 1024;

/// The password of a keystore of Zuul's (`[keystore] password` in its `zuul.conf`). Never printed, wiped when dropped.
pub struct KeystorePassword(Plaintext);

impl std::fmt::Debug for KeystorePassword {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeystorePassword(…)")
    }
}

impl KeystorePassword {
    /// From the text of a file: its first line, without blanks around it.
    ///
    /// # Errors
    /// There is none in it, or it is longer than 1,024 bytes.
    pub fn read(text: &str) -> Result<KeystorePassword, KeyringError> {
        let line = text.lines().next().unwrap_or_default().trim();
        match line.len() {
            0 => Err(KeyringError::Import { why: "the password is empty: it is the first line of its file" }),
            1..=LONGEST => Ok(KeystorePassword(Plaintext(line.as_bytes().to_vec()))),
            _ => Err(KeyringError::Import { why: "the password is longer than 1,024 bytes" }),
        }
    }

    /// So many bytes of a key from password and salt (OpenSSL's `EVP_BytesToKey` with MD5 and one round).
    fn key(&self, salt: &[u8], bytes: usize) -> Plaintext {
        let mut key = Plaintext(Vec::with_capacity(bytes + BLOCK));
        let mut last = Plaintext(Vec::new());
        while key.len() < bytes {
            let digest = Md5::new().chain_update(&*last).chain_update(&*self.0).chain_update(salt).finalize();
            last = Plaintext(digest.to_vec());
            key.0.extend_from_slice(&last);
        }
        key.0.truncate(bytes);
        key
    }
}

/// A private key as PEM under a password: AES with 256 bits, as Zuul writes it.
pub(crate) fn write(private: &RsaPrivateKey, password: &KeystorePassword) -> Result<String, KeyringError> {
    let failed = |error: String| KeyringError::Make(error);
    let der = private.to_pkcs1_der().map_err(|error| failed(error.to_string()))?;
    let iv: [u8; BLOCK] = random()?;
    let key = password.key(iv.get(..SALT).unwrap_or_default(), 32);
    let cipher = cbc::Encryptor::<Aes256>::new_from_slices(&key, &iv).map_err(|error| failed(error.to_string()))?;
    let sealed = STANDARD.encode(cipher.encrypt_padded_vec::<Pkcs7>(der.as_bytes()));
    let mut pem = format!("{BEGIN}\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,{}\n\n", hex::encode_upper(iv));
    for line in sealed.as_bytes().chunks(64) {
        pem.push_str(&String::from_utf8_lossy(line));
        pem.push('\n');
    }
    pem.push_str(END);
    pem.push('\n');
    Ok(pem)
}

/// A private key from PEM under a password; one without is taken as it is.
pub(crate) fn read(pem: &str, password: &KeystorePassword) -> Result<RsaPrivateKey, KeyringError> {
    let refused = |why: &'static str| KeyringError::Import { why };
    if pem.len() > LONGEST_PEM || !pem.contains("ENCRYPTED") {
        return project_key::read_pem(pem);
    }
    let body = pem.trim().strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix(END));
    let body = body.ok_or(refused(
        "it is under a password, but not in the form that Zuul writes (`RSA PRIVATE KEY` with `DEK-Info`): take the \
         password away with `openssl pkey -in FILE -out NEW` and import it by itself",
    ))?;
    let (mut method, mut sealed) = (None, String::new());
    for line in body.lines().map(str::trim) {
        match line.split_once(": ") {
            Some(("DEK-Info", info)) => method = info.split_once(','),
            Some(_) => {}
            None => sealed.push_str(line),
        }
    }
    let (method, iv) = method.ok_or(refused("it is under a password, and does not say by which cipher"))?;
    let bytes = match method {
        "AES-256-CBC" => 32,
        "AES-192-CBC" => 24,
        "AES-128-CBC" => 16,
        _ => {
            return Err(refused(
                "it is under another cipher than AES-CBC: `openssl rsa -aes256 -traditional -in FILE -out NEW` changes that",
            ));
        }
    };
    let iv = hex::decode(iv).ok().filter(|iv| iv.len() == BLOCK).ok_or(refused("its `DEK-Info` is damaged"))?;
    let sealed = STANDARD.decode(sealed).map_err(|_| refused("its base64 is damaged"))?;
    let opened = match bytes {
        32 => open::<Aes256>(password, &iv, &sealed, bytes),
        24 => open::<Aes192>(password, &iv, &sealed, bytes),
        _ => open::<Aes128>(password, &iv, &sealed, bytes),
    };
    // A wrong password shows in the padding, or in what comes out: one answer for both.
    let private = opened.and_then(|der| RsaPrivateKey::from_pkcs1_der(&der).ok());
    project_key::fit(private.ok_or(refused("the password does not open it, or it is damaged"))?)
}

fn open<C>(password: &KeystorePassword, iv: &[u8], sealed: &[u8], bytes: usize) -> Option<Plaintext>
where
    C: aes::cipher::BlockCipherDecrypt + aes::cipher::KeyInit,
{
    let key = password.key(iv.get(..SALT)?, bytes);
    let cipher = cbc::Decryptor::<C>::new_from_slices(&key, iv).ok()?;
    cipher.decrypt_padded_vec::<Pkcs7>(sealed).ok().map(Plaintext)
}
