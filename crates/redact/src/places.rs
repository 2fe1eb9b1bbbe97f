//! The texts by which secrets are found that only their place tells, and what inspects the place.

use crate::{
    account_file, call, command_line, encoded_text, link, pem, pipe, programs::COMMAND_TEXTS, secret_block,
    span::Inspection, visible_text::TextView,
};

/// Inspects the place of a text that was found: its start and its end.
pub(crate) type InspectPlace = fn(TextView<'_>, usize, usize) -> Inspection;

const OTHER_PLACES: &[(&str, InspectPlace)] = &[
    ("echo ", pipe::inspect_echo),
    ("printf '", pipe::inspect_echo),
    ("printf %s '", pipe::inspect_echo),
    ("printf %s \"", pipe::inspect_echo),
    ("\tTRUE\t", account_file::inspect_cookie_line),
    ("\tFALSE\t", account_file::inspect_cookie_line),
    ("<<< ", pipe::inspect_here_string),
    (":5432:", account_file::inspect_pgpass),
    (":*:", account_file::inspect_pgpass),
    ("]:587 ", account_file::inspect_sasl),
    ("user = \"", account_file::inspect_user_line),
    ("{SHA}", account_file::inspect_sha),
    ("community ", account_file::inspect_community),
    ("ogin: ", account_file::inspect_login),
    ("thin:", link::inspect_oracle),
    ("%3A%2F%2F", encoded_text::inspect_written_link),
    (":\\/\\/", link::inspect_written_link),
    ("%253A%252F", encoded_text::inspect_percent),
    ("%7B%22", encoded_text::inspect_percent),
    ("\\u003d", encoded_text::inspect_unicode),
    ("orization%3D", encoded_text::inspect_percent),
    ("SESSID%3D", encoded_text::inspect_percent),
    ("SESSIONID%3D", encoded_text::inspect_percent),
    ("session%3D", encoded_text::inspect_percent),
    ("sid%3D", encoded_text::inspect_percent),
    ("+ '[' -z ", account_file::inspect_tested),
    ("+ '[' -n ", account_file::inspect_tested),
    ("+ [[ -z ", account_file::inspect_tested),
    ("+ [[ -n ", account_file::inspect_tested),
    ("orization%3A", encoded_text::inspect_percent),
    ("aHR0cHM6Ly9", encoded_text::inspect_base64),
    ("aHR0cDovL", encoded_text::inspect_base64),
    ("bW9uZ29kY", encoded_text::inspect_base64),
    ("cG9zdGdyZX", encoded_text::inspect_base64),
    ("bXlzcWw6Ly", encoded_text::inspect_base64),
    ("cmVkaXM6Ly", encoded_text::inspect_base64),
    ("cmVkaXNzOi", encoded_text::inspect_base64),
    ("amRiYzp", encoded_text::inspect_base64),
    ("YW1xcDovL", encoded_text::inspect_base64),
    ("YW1xcHM6L", encoded_text::inspect_base64),
    ("U2VydmVyP", encoded_text::inspect_base64),
    ("-----BEGIN+", pem::inspect_encoded_pem),
    ("-----BEGIN%20", pem::inspect_encoded_pem),
    (" on >", account_file::inspect_acl),
    ("AUTH ", account_file::inspect_auth),
    ("send \"", account_file::inspect_expect),
    ("ata\":{", secret_block::inspect_secret_json),
    ("ata\": {", secret_block::inspect_secret_json),
    ("IDENTIFIED BY ", call::inspect_identified),
    ("ata:\n", secret_block::inspect_secret_data),
    ("ata:\r\n", secret_block::inspect_secret_data),
    ("priv:\n", secret_block::inspect_hex_block),
    ("ivateExponent:\n", secret_block::inspect_hex_block),
    ("prime1:\n", secret_block::inspect_hex_block),
    ("prime2:\n", secret_block::inspect_hex_block),
    ("exponent1:\n", secret_block::inspect_hex_block),
    ("exponent2:\n", secret_block::inspect_hex_block),
    ("coefficient:\n", secret_block::inspect_hex_block),
    ("keys_b64\": [", secret_block::inspect_list),
    ("keys_hex\": [", secret_block::inspect_list),
    ("keys_base64\": [", secret_block::inspect_list),
    ("recovery_codes\": [", secret_block::inspect_list),
    ("backup_codes\": [", secret_block::inspect_list),
    ("UGFzc3dvcmQ6", account_file::inspect_mail_login),
    ("\"kty\"", secret_block::inspect_web_key),
    ("\"d\":", secret_block::inspect_web_key),
    ("\"kty\\\"", secret_block::inspect_web_key),
    ("\"d\\\":", secret_block::inspect_web_key),
];

/// Passwords in other languages, whose letters are in no other name.
const FOREIGN_NAMES: &[&str] = &[
    "Пароль: ",
    "пароль: ",
    "ontraseña: ",
    "ot de passe : ",
    "ot de passe: ",
    "パスワード: ",
    "パスワード：",
    "密码: ",
    "密码：",
    "密碼：",
    "비밀번호: ",
    "Hasło: ",
    "hasło: ",
    "Schlüssel: ",
    "enha: ",
    "achtwoord: ",
    "ennwort: ",
    "arola: ",
    "pw ist ",
    "pw: ",
];

/// All texts, and what inspects them.
pub(crate) fn places() -> impl Iterator<Item = (&'static str, InspectPlace)> {
    let commands = COMMAND_TEXTS.iter().map(|t| (*t, command_line::inspect_command as InspectPlace));
    let calls = call::CALLS.iter().map(|(text, _)| (*text, call::inspect_call as InspectPlace));
    let foreign = FOREIGN_NAMES.iter().map(|t| (*t, account_file::inspect_labelled as InspectPlace));
    commands.chain(calls).chain(foreign).chain(OTHER_PLACES.iter().copied())
}
