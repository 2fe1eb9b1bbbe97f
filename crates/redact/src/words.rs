//! Word lists for names and values. Each is data: words separated by blanks, in any order.

/// A name with `key` or `token` that contains one of these does not name a secret.
pub(crate) const OTHER_NAME_WORDS: &str = "\
    keyboard keyword keymap hotkey shortcut monkey turkey tokeniz tokenis keyframe keypath keycode keydown keyup \
    keypress keystroke keyval keysym keypad keyspace sortkey sort_key sort-key partition cachekey cache_key \
    cache-key fingerprint keyring keystore keyserver max_token maxtoken num_token token_count tokencount \
    token_limit token_budget token_len token_index donkey whiskey hockey jockey mickey key_mgmt key-mgmt \
    key_exchange known_hosts keyof keyphrase object_key image_key row_key group_key group-key key_prefix \
    token_prefix stringkey objectkey propertykey";

/// A name with one of these endings tells where a secret is, or of which kind, but is not followed by one.
pub(crate) const OTHER_NAME_ENDINGS: &str = "\
    key_id keyid key-id key_name keyname key-name key_type keytype key-type key_len keylen key_size keysize \
    key_usage keyusage key_file keyfile key-file key_path keypath key-path key_alg keyalg key_ops secret_name \
    secretname secret-name secret_ref secretref secret-ref secretkeyref token_type tokentype token-type token_url \
    tokenurl token_uri token_endpoint password_file password-file passwordfile passwd_file secret_file secret-file \
    token_file token-file tokenfile password_field secrets_path public_key publickey public-key primary_key \
    primarykey primary-key foreign_key foreignkey foreign-key passwordless secretary \
    passwordmgr withdefaultrealm withpriorauth _min _max _query _policy _encryption _length _tokens pwdlastset \
    next_token nexttoken next-token continuation_token continuationtoken page_token pagetoken pagination_token \
    paginationtoken clienttoken client_token idempotency_token sync_token key_sha256 keysha256 secret_arn secretarn \
    rolearn _at changedat updatedat createdat usedat rotatedat expiresat _date lastchanged last_changed lastupdated \
    last_updated lastused last_used lastrotated last_rotated timestamp _expires _expiry _expiration algorithm accessor \
    versionid version_id credentialid credential_id storage_key blob_key attachment_key synctoken password_id set-secrets .pem .crt .json .yaml \
    .yml .md .html .txt";

/// A name with `key` or `token` that contains one of these names a secret.
pub(crate) const TELLING_NAME_WORDS: &str = "\
    api access auth private priv signing sign_ encrypt master bearer refresh session client account service admin \
    deploy bot app ssh license subscription storage shared webhook registry npm github gitlab slack aws azure gcp \
    openai anthropic stripe heroku vault secret csrf xsrf jwt oauth id_token idtoken device publish upload push user \
    root server security validation decryption consumer ingest write read pypi docker discord telegram twilio sentry datadog grafana \
    cloudflare digitalocean hook bridge hmac otp cookie unseal recovery routing integration bootstrap join pairing certificate";

/// Words that are written in place of a secret.
pub(crate) const PLACEHOLDER_WORDS: &str = "\
    null none nil true false undefined void string str bytes byte object required optional default password passwd \
    secret token key user username value text empty unset unknown disabled enabled hidden masked redacted removed \
    omitted example changeme change-me change_me changeit placeholder dummy sample todo fixme tbd xxx yyy foo bar \
    baz test testing secretkey mysecret mypassword yourpassword passw0rd invalid valid expired missing wrong \
    incorrect is was are and the for not must should prompt stdin file env auto manual basic digest bearer public \
    private rsa ed25519 ecdsa x25519 aes sha256 sha512 md5 utf8 utf-8 base64 hex int integer number boolean bool \
    float double char date array list dict self this passwort benutzer anoncvs anonymous args input output name type status error fail failed success ok \
    yes no on off any all new old next prev current reset forgot confirm repeat enter password1 pass postgres root \
    admin guest minioadmin option some vec static const let var return function async await import from class struct";

/// Words that end with `pass` and name no password.
pub(crate) const PASS_WORDS: &str = "\
    bypass minipass buypass compass encompass surpass trespass multipass subpass renderpass lowpass highpass bandpass overpass underpass \
    by_pass by-pass low_pass high_pass low-pass high-pass render_pass first_pass second_pass last_pass one_pass \
    two_pass single_pass single-pass multi_pass multi-pass sub_pass mod_pass allpass all_pass proxy_pass fastcgi_pass \
    uwsgi_pass grpc_pass scgi_pass memcached_pass proxypass lto_pass opt_pass test_pass tests_pass checks_pass";

/// Names whose value is a secret only if it is long and random.
pub(crate) const RANDOM_NAME_WORDS: &str = "\
    auth _auth creds salt seed license code sig sid connect.sid sessionid jsessionid phpsessid asp.net_sessionid \
    jwt signature session_id laravel_session _session session cf_clearance li_at roblosecurity";

/// Parts of names of algorithms, encodings and versions, which have numbers like passphrases.
pub(crate) const ALGORITHM_WORDS: &str = "\
    sha sha1 sha2 sha3 sha224 sha256 sha384 sha512 md4 md5 aes aes128 aes192 aes256 rsa dsa ecdsa ed25519 hmac utf utf8 \
    iso ascii base base32 base64 bcrypt scrypt argon2 argon2i argon2id pbkdf2 scram gcm cbc ctr tls ssl http https \
    x509 pkcs pkcs1 pkcs8 pkcs12 rfc v1 v2 v3 version char chars bit bits byte bytes min max len length password passwd \
    secret token user pwd var arg param value line column page step test example";

/// Words of texts and of classes of user interfaces, which are joined like words of passphrases.
pub(crate) const UI_WORDS: &str = "\
    input field form label text error reset login user auth confirm enter your current hidden show hide toggle \
    button icon group control container wrapper message strength meter forgot change update must have with from that \
    this been when page link modal dialog panel item list view name email phone code wrong invalid required \
    policy check match minimum length weak strong common basic token manager store vault file path";

/// Words of paths, of code and of sentences about passwords, which words of passwords are not.
pub(crate) const PATH_WORDS: &str = "\
    config configs settings lib src bin usr opt etc var tmp home data secrets secret vault keys certs env prod dev stage \
    app apps api http https www com org net local internal localhost self this request response body params args \
    process node python java ruby rust module modules class type types model models value values index least most than \
    more between characters letters digits numbers maximum max min special upper lower case pattern regex format number";
