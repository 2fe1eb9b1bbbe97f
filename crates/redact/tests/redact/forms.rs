//! Places in which secrets stand, each tried with passwords of several kinds and with every way of cutting the text.

use crate::support::{find_leak, mask, name_placeholders, redact_in_pieces};
use proptest::prelude::*;

/// Kinds of values: `a` letters and digits, `s` with signs that need quotes, `u` with signs that a shell takes as they are,
/// `w` words with a number, `h` hexadecimal, `b` base64, `t` a long token.
const ALL: &str = "aswhb";
const BARE: &str = "auwhb";
const LONG: &str = "tb";

/// Texts with `§` in place of the secret, and the kinds of values that may stand there.
const FORMS: &[(&str, &str)] = &[
    // Headers
    ("Authorization: Digest username=\"bob\", realm=\"r\", nonce=\"§\", uri=\"/x\"\n", "h"),
    (
        "Authorization: Digest username=\"bob\", realm=\"r\", uri=\"/dir\", qop=auth, nc=00000001, cnonce=\"§\", opaque=\"x\"\n",
        "h",
    ),
    ("-H 'Authorization: Digest username=\"bob\", response=\"§\"' https://x\n", "h"),
    ("{\"Authorization\": \"Digest username=\\\"bob\\\", response=\\\"§\\\"\"}", "h"),
    ("Authorization: Hawk id=\"dh37\", ts=\"1353832234\", mac=\"§=\"\n", "b"),
    ("Authorization: OAuth oauth_consumer_key=\"c1\", oauth_signature=\"§\", oauth_version=\"1.0\"\n", "b"),
    ("Authorization: Basic §\n", LONG),
    ("Authorization: ApiKey §\n", "tah"),
    ("Authorization: Bearer §\n", "tah"),
    ("curl -b \"sid=§\" https://x\n", "at"),
    ("curl --cookie 'session=§; theme=dark' https://x\n", "at"),
    ("GET /x PHPSESSID=§ done\n", "t"),
    ("JSESSIONID=§; Path=/\n", "t"),
    ("https://x/app;jsessionid=§\n", "t"),
    ("https://x/cb?code=§&state=abc\n", "t"),
    ("https://x/oauth/callback?code=§\n", "t"),
    ("https://x/?auth=§&b=1\n", "t"),
    ("https://x/?sid=§\n", "t"),
    ("https://x/?pass=§&b=1\n", "a"),
    ("https://x/?a=1&sig=§&b=1\n", "t"),
    // Links
    ("https://§@github.com/a/b.git\n", "t"),
    ("postgres://app:§@db.local:5432/x\n", "auwhb"),
    ("clone https://oauth2:§@gitlab.com/x.git now\n", BARE),
    ("jdbc:oracle:thin:scott/§@//db:1521/x\n", "auwh"),
    ("sqlplus scott/§@orcl\n", "awh"),
    ("$ sqlplus -s scott/§@//db:1521/x @run.sql\n", "awh"),
    ("sql.Open(\"mysql\", \"root:§@tcp(127.0.0.1:3306)/db\")\n", "awh"),
    // Commands
    ("curl -u bob:§ https://x\n", BARE),
    ("curl -u 'bob:§' https://x\n", ALL),
    ("+ curl -sSf -u bob:§ https://x\n", BARE),
    ("curl -sSubob:§ https://x\n", "awh"),
    ("curl --user bob:§ https://x\n", BARE),
    ("curl --user=bob:§ https://x\n", BARE),
    ("curl --user \"bob:§\" https://x\n", "awhb"),
    ("curl -x http://p:3128 -U bob:§ https://x\n", BARE),
    ("curl --proxy-user bob:§ https://x\n", BARE),
    ("curl \\\n  -X POST \\\n  -u bob:§ \\\n  https://x\n", BARE),
    ("[\"curl\", \"-u\", \"bob:§\", \"https://x\"]", "awhb"),
    ("['curl', '-s', '-u', 'bob:§']", "awhb"),
    ("{\"cmd\": \"curl -u bob:§ https://x\"}", "awhb"),
    ("{\"cmd\": \"curl -u \\\"bob:§\\\" https://x\"}", "awhb"),
    ("http -a bob:§ GET https://x\n", BARE),
    ("xh --auth bob:§ https://x\n", BARE),
    ("mysql -u root -p§ db\n", "awhb"),
    ("mysqldump -uroot -p'§' db > x.sql\n", ALL),
    ("docker exec db mysql -uroot -p§\n", "awh"),
    ("mysqladmin -u root password §\n", "aw"),
    ("mongosh -u admin -p § --authenticationDatabase admin\n", "awh"),
    ("mongodump --host x -u admin -p '§'\n", ALL),
    ("redis-cli -h x -a § ping\n", "awh"),
    ("redis-cli --pass § ping\n", "awh"),
    ("docker login -u bob -p § registry.x\n", "awhb"),
    ("podman login quay.io -u bob -p '§'\n", ALL),
    ("az login --service-principal -u x -p § --tenant y\n", "awh"),
    ("helm registry login -u bob -p § x.io\n", "awh"),
    ("twine upload -u bob -p § dist/*\n", "awh"),
    ("skopeo copy --src-creds bob:§ docker://a docker://b\n", "aw"),
    ("skopeo inspect --creds bob:§ docker://a\n", "aw"),
    ("openssl rsa -in k -passin pass:§ -out x\n", "awh"),
    ("openssl enc -aes-256-cbc -k § -in a\n", "awh"),
    ("openssl enc -d -pass pass:§\n", "awh"),
    ("apksigner sign --ks-pass pass:§ x.apk\n", "awh"),
    ("keytool -list -keystore k -storepass §\n", "awh"),
    ("keytool -importkeystore -srcstorepass § -deststorepass x\n", "awh"),
    ("zip -P § out.zip a b\n", "awh"),
    ("unzip -P '§' out.zip\n", ALL),
    ("7z a -p§ out.7z dir\n", "awh"),
    ("rar a -hp§ out.rar dir\n", "awh"),
    ("ldapsearch -x -D cn=admin -w § -b dc=x\n", "awh"),
    ("ldapadd -x -D cn=admin -w '§' -f x\n", ALL),
    ("sqlcmd -S x -U sa -P § -Q 'select 1'\n", "awh"),
    ("bcp db.t out f -S x -U sa -P '§'\n", ALL),
    ("ipmitool -I lanplus -H h -U ADMIN -P § chassis\n", "awh"),
    ("smbclient //srv/share -U bob%§\n", "awh"),
    ("smbclient //srv/share -U 'bob%§'\n", "awh"),
    ("net use Z: \\\\srv\\share § /user:bob\n", "aw"),
    ("net user bob § /add\n", "aw"),
    ("xfreerdp /u:bob /p:§ /v:host\n", "awh"),
    ("plink -ssh bob@h -pw § ls\n", "awh"),
    ("snmpwalk -v2c -c § host\n", "awh"),
    ("psexec.py dom/bob:§@10.0.0.1\n", "awh"),
    ("echo § | docker login -u bob --password-stdin\n", "awh"),
    ("echo '§' | docker login -u bob --password-stdin x.io\n", ALL),
    ("echo \"bob:§\" | chpasswd\n", "awh"),
    ("echo -n '§' | sudo -S ls\n", ALL),
    ("echo § | passwd --stdin bob\n", "awh"),
    ("echo \"§\" | gh auth login --with-token\n", "ath"),
    ("echo § | wrangler secret put X\n", "ath"),
    ("printf '%s' '§' | docker login --password-stdin\n", ALL),
    ("sudo -S ls <<< '§'\n", ALL),
    ("chpasswd <<< 'bob:§'\n", ALL),
    ("htpasswd -b .htpasswd bob §\n", "awh"),
    ("htpasswd -nb bob §\n", "awh"),
    ("aws configure set aws_secret_access_key §\n", "tb"),
    ("aws configure set aws_session_token § --profile x\n", "t"),
    ("gh secret set NPM --body §\n", "ath"),
    ("gh secret set NPM -b '§' -R a/b\n", "ath"),
    ("cargo login §\n", "at"),
    ("npm config set //registry.x/:_authToken §\n", "at"),
    ("poetry config http-basic.x bob §\n", "aw"),
    ("poetry config pypi-token.pypi §\n", "t"),
    ("composer config http-basic.repo.x bob §\n", "aw"),
    ("bundle config rubygems.pkg.github.com bob:§\n", "aw"),
    ("dotnet nuget push x.nupkg -k § -s https://x\n", "at"),
    ("vault login §\n", "at"),
    ("vault kv put secret/app user=bob1x pin=§\n", "aw"),
    ("ngrok config add-authtoken §\n", "t"),
    ("nmcli dev wifi connect home password §\n", "aw"),
    ("wpa_passphrase home §\n", "aw"),
    ("ConvertTo-SecureString '§' -AsPlainText -Force\n", ALL),
    ("ConvertTo-SecureString -String \"§\" -AsPlainText -Force\n", "aw"),
    ("SSHPASS=§ sshpass -e ssh x\n", "aw"),
    // Files
    ("localhost:5432:app:bob:§\n", BARE),
    ("*:*:*:bob:§\n", BARE),
    ("db.x:5432:*:bob:§\n", "awh"),
    ("_auth=§=\n", "b"),
    ("//r.x/:_auth=§\n", "b"),
    ("user = \"bob:§\"\n", "awhb"),
    ("[remote]\ntype = ftp\nuser = bob\npass = §\n", "ah"),
    ("\"pass\": \"§\",\n", "a"),
    ("<Pass encoding=\"base64\">§</Pass>\n", "b"),
    ("{\"github-oauth\": {\"github.com\": \"§\"}}", "th"),
    ("bob:{SHA}§=\n", "b"),
    ("kind: Secret\nmetadata:\n  name: x\ndata:\n  foo: §\n  bar: aGVsbG8=\ntype: Opaque\n", "bt"),
    ("kind: Secret\nmetadata:\n  name: x\nstringData:\n  foo: §\n", "abtw"),
    ("apiVersion: v1\ndata:\n  foo: §\nkind: Secret\nmetadata:\n", "bt"),
    ("network={\n  ssid=\"x\"\n  psk=\"§\"\n}\n", ALL),
    ("  psk=§\n", "h"),
    ("[smtp.x.com]:587 bob@x.com:§\n", "awhb"),
    ("enable secret 9 §\n", "at"),
    ("username bob password 7 §\n", "h"),
    ("snmp-server community § RO\n", "awh"),
    ("        secret \"$9$§\"; ## SECRET-DATA\n", "t"),
    ("password 51:b:§\n", "h"),
    ("{\"auths\": {\"x.io\": {\"auth\": \"§\"}}}", "b"),
    ("    client-key-data: §\n", "b"),
    ("db_password = \"§\"\n", ALL),
    // Program text
    ("#define WIFI_PASSWORD \"§\"\n", ALL),
    ("#define API_KEY \"§\"\n", "at"),
    ("SECRET_KEY = 'django-insecure-§'\n", "t"),
    ("define('AUTH_KEY',         '§');\n", "t"),
    ("define('LOGGED_IN_SALT',   '§');\n", "t"),
    ("new mysqli(\"localhost\", \"root\", \"§\", \"db\");\n", "aw"),
    ("mysqli_connect('h', 'u', '§')\n", "aw"),
    ("new PDO($dsn, \"root\", \"§\")\n", "aw"),
    ("DriverManager.getConnection(url, \"root\", \"§\")\n", "aw"),
    ("client.login(\"bob\", \"§\")\n", "aw"),
    ("db.auth(\"bob\", \"§\")\n", "aw"),
    ("Driver={SQL};UID=sa;PWD={§};\n", "aw"),
    ("<machineKey validationKey=\"§\" decryptionKey=\"x\" />\n", "h"),
    ("{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"abc\",\"d\":\"§\"}", "t"),
    ("{\"kty\":\"oct\",\"k\":\"§\"}", "t"),
    ("{\"d\":\"§\",\"e\":\"AQAB\",\"kty\":\"RSA\"}", "t"),
    ("CREATE USER bob IDENTIFIED BY \"§\";\n", ALL),
    ("ALTER USER bob IDENTIFIED BY §;\n", "awh"),
    ("CREATE LOGIN bob WITH PASSWORD = N'§';\n", ALL),
    ("password: >-\n  §\nnext: 1\n", ALL),
    ("  password: |\n    §\n  next: 1\n", ALL),
    ("The password is § for now\n", "aw"),
    ("login: bob / §\n", "aw"),
    ("user: bob pass: §\n", "a"),
    ("pw: §\n", "a"),
    ("dbpass=§\n", BARE),
    ("auth=§\n", "t"),
    ("creds = bob:§\n", "a"),
    ("salt: \"§\"\n", "t"),
    ("SEED=§\n", "t"),
    ("{\"outer\": \"{\\\"password\\\": \\\"§\\\"}\"}", "awhb"),
    ("{\"a\": \"{\\\"b\\\": \\\"{\\\\\\\"password\\\\\\\": \\\\\\\"§\\\\\\\"}\\\"}\"}", "awhb"),
    ("Config(user='bob', password='§')\n", ALL),
    ("Config { user: \"bob\", password: \"§\" }\n", ALL),
    ("Config { user: \"bob\", password: Some(\"§\") }\n", "awhb"),
    ("{'password': b'§'}\n", "awhb"),
    ("{Password:§ User:bob}\n", "awh"),
    ("&{User:\"bob\" Password:\"§\"}\n", "awhb"),
    ("password -> \"§\"\n", "awhb"),
    ("password <- \"§\"\n", "awhb"),
    ("password := \"§\"\n", ALL),
    ("'password' => '§',\n", ALL),
    ("(\"password\", \"§\")\n", "awhb"),
    ("password = (\"§\")\n", "awhb"),
    ("      + password = \"§\"\n", ALL),
    ("      ~ password = \"§\" -> \"other1x\"\n", "awhb"),
    ("      ~ password = \"other1x\" -> \"§\"\n", "awhb"),
    // Notations of languages and documents
    ("$ENV{DB_PASSWORD} = \"§\";\n", "awhb"),
    ("process.env.DB_PASSWORD || '§'\n", "aw"),
    ("<entry key=\"password\">§</entry>\n", "awhb"),
    ("a: <key>password</key>\n<string>§</string>\n", "awhb"),
    ("<property name=\"password\"><value>§</value></property>\n", "awhb"),
    ("a: <password><![CDATA[§]]></password>\n", "awh"),
    ("&quot;password&quot;: &quot;§&quot;\n", "awh"),
    ("password: &p §\n", "awh"),
    ("password:\n  §\nnext: 1\n", "awh"),
    ("dataSource.setPassword(\"§\");\n", ALL),
    ("(setq smtp-password \"§\")\n", "aw"),
    ("{:password \"§\"}\n", "aw"),
    ("    storePassword '§'\n", "aw"),
    ("map[Host:[x] X-Api-Key:[§]]\n", "ath"),
    ("│ password │ § │\n", "aw"),
    ("Datadog App Key: §\n", "h"),
    ("{\"ParameterKey\": \"DbPassword\", \"ParameterValue\": \"§\"}\n", "awh"),
    ("new NetworkCredential(\"bob\", \"§\")\n", "aw"),
    ("requests.get(u, auth=(\"bob\", \"§\"))\n", "aw"),
    ("A temporary password is generated for root@localhost: §\n", "aw"),
    ("bindpw §\n", "aw"),
    ("CREATE USER bob IDENTIFIED WITH mysql_native_password BY '§';\n", "aw"),
    ("SNYK_TOKEN=§\n", "h"),
    ("{\"env\": {\"SONAR_TOKEN\": \"§\"}}\n", "h"),
    ("X-Consul-Token: §\n", "h"),
    ("circleci setup --token §\n", "h"),
    ("CLIENT_SECRET=crimson-§\n", "w"),
    // More commands
    ("cqlsh -u bob -p § h\n", "awh"),
    ("cypher-shell -u neo4j -p '§'\n", ALL),
    ("security unlock-keychain -p § login.keychain\n", "awh"),
    ("ssh-keygen -t rsa -N '§' -f k\n", "awh"),
    ("lftp -u bob,§ ftp://h\n", "awh"),
    ("mosquitto_pub -h h -u b -P § -t x\n", "awh"),
    ("rabbitmqctl add_user bob §\n", "awh"),
    ("aws ssm put-parameter --name x --value § --type SecureString\n", "aw"),
    ("az keyvault secret set --vault-name v -n x --value §\n", "awh"),
    ("snyk auth §\n", "a"),
    ("password = §\n", BARE),
    ("password: §\n", BARE),
    ("DB_PASSWORD=§\n", BARE),
    ("connected with password=§ user=bob\n", "auwh"),
    ("Server=x;User Id=sa;Password=§;Database=y\n", "awh"),
    ("host=x password=§ dbname=y\n", "awh"),
    // Values on the next line
    ("aws_secret_access_key:\n  \"§\"\n", "abt"),
    ("<client_secret>\n  §\n</client_secret>\n", "at"),
    ("asana.client.secret=\\\n    §\n", "at"),
    ("client_secret = \"\"\"\n§\"\"\"\n", "at"),
    ("deploy \\\n  --api-key \\\n  § \\\n  --yes\n", "at"),
    ("args:\n- --api-key\n- §\n", "at"),
    ("client_secret: Some(\n    \"§\",\n)\n", "at"),
    (">>> client_secret\n'§'\n", "t"),
    ("[\"client_secret\"]=>\n  string(40) \"§\"\n", "at"),
    ("name=\"client_secret\"\r\n\r\n§\r\n--b\r\n", "t"),
    ("use the following password to proceed to installation:\n\n§\n\nThis may\n", "tw"),
    // Conditions, comparisons and calls
    ("if [ \"$CLIENT_SECRET\" != \"§\" ]; then exit 1; fi\n", "t"),
    ("assert settings.client_secret == \"§\"\n", "t"),
    ("const clientSecret = isProd ? \"§\" : \"\";\n", "t"),
    ("yelp.api.key = ${?YELP_API_KEY} \"§\"\n", "t"),
    ("read -r CLIENT_SECRET <<< \"§\"\n", "at"),
    ("printf 'CLIENT_SECRET=%s\\n' '§' > .env\n", "at"),
    ("##vso[task.setvariable variable=CLIENT_SECRET;issecret=true]§\n", "at"),
    ("::set-env name=CLIENT_SECRET::§\n", "at"),
    ("    .cohereApiKey(\"§\")\n", "t"),
    ("const std::string kApiKey{\"§\"};\n", "t"),
    ("$ENV{'CLIENT_SECRET'} = '§';\n", "at"),
    ("{\"client_secret\": [\"§\"]}\n", "at"),
    ("headers.Authorization = \"Bearer \" + \"§\";\n", "t"),
    ("req.Header.Set(\"Authorization\", \"Bearer \"+\"§\")\n", "t"),
    ("{\"msg\":\"\\u0022client_secret\\u0022:\\u0022§\\u0022\"}\n", "at"),
    // Prose and signs
    ("warning: CLIENT_SECRET is set to §\n", "t"),
    ("? client_secret: › §\n", "t"),
    ("client_secret：§\n", "at"),
    ("client_secret .......... §\n", "t"),
    ("here is the client_secret `§`\n", "t"),
    ("-- client_secret §\n", "t"),
    ("CLIENT_SECRET,§\n", "t"),
    (":client_secret: ``§``\n", "t"),
    ("- **CLIENT_SECRET**: `§`\n", "t"),
    ("Generated password for user admin: §\n", "aw"),
    ("AWS Secret Access Key [None]: §\n", "tb"),
    ("search.exe /ApiKey:§\n", "t"),
    ("{noformat}CLIENT_SECRET=§{noformat}\n", "at"),
    ("Connect-Thing -User bob -Password '§'\n", "aswh"),
    // Tables
    ("username,password,email\nbob,§,bob@acme.dev\n", "aw"),
    ("\"user\",\"api_key\",\"active\"\n\"ci\",\"§\",\"true\"\n", "ht"),
    ("user\tapi_key\trole\nmarta\t§\tadmin\n", "ht"),
    ("| user | password |\n| --- | --- |\n| alice | § |\n", "aw"),
    (
        "+----+---------------+\n| id | client_secret |\n+----+---------------+\n|  1 | § |\n+----+---------------+\n",
        "ht",
    ),
    ("<tr><td>CLIENT_SECRET</td><td>§</td></tr>\n", "at"),
    ("| `CLIENT_SECRET` | `§` | production |\n", "at"),
    // Names behind or far before values
    ("<input value=\"§\" type=\"hidden\" id=\"plivo-auth-token\">\n", "t"),
    ("{\"value\": \"§\", \"name\": \"CLIENT_SECRET\", \"type\": \"secret\"}\n", "t"),
    ("\"Name\": \"/prod/x/drone_token\",\n \"Type\": \"SecureString\",\n \"Value\": \"§\",\n", "t"),
    ("variable \"mandrill_api_key\" {\n  type    = string\n  default = \"§\"\n}\n", "t"),
    // Links, protocols and files
    ("https%3A%2F%2Fmarta%3A§%40git.acme.dev%2Fx.git\n", "awh"),
    ("{\"url\":\"https:\\/\\/alice:§@git.acme.dev\\/x.git\"}\n", "awh"),
    ("user app on >§ ~* +@all\n", "awh"),
    ("127.0.0.1:6379> AUTH §\n", "awh"),
    ("AUTH PLAIN §\n", "t"),
    ("expect \"assword:\" { send \"§\\r\" }\n", "aw"),
    ("{\"apiVersion\":\"v1\",\"data\":{\"value\":\"§\"},\"kind\":\"Secret\",\"metadata\":{\"name\":\"x\"}}\n", "bt"),
    ("<AdministratorPassword><Value>§</Value></AdministratorPassword>\n", "aw"),
    ("adminpw: §\n", "aw"),
    ("Set `CLIENT_SECRET` to `§` and restart.\n", "t"),
    ("- **vonage api secret**: `§`\n", "th"),
    ("- **vonage api secret:** `§`\n", "th"),
    ("rails master key: §\n", "th"),
    ("Username: anna\nPassword: §\n", "aw"),
    ("INSERT INTO settings (id, name, client_secret) VALUES (1, 'reports', '§');\n", "ht"),
    ("https://maps.acme.dev/tile?z=1&key=§&x=2\n", "ht"),
    ("nmcli dev wifi connect \"Guest\" password \"§\"\n", "asw"),
    ("key=-----BEGIN+PRIVATE+KEY-----%0A§%0A-----END+PRIVATE+KEY-----\n", "t"),
    // Values that no separator joins to their names
    ("{\"vonage_secret\": {\n  \"sensitive\": true,\n  \"type\": \"string\",\n  \"value\": \"§\"\n}}\n", "aswhbt"),
    (
        "  + name           = \"/prod/x/api_secret\"\n  + type           = \"String\"\n  + secret_value = \"§\"\n",
        "ahbt",
    ),
    ("\"name\": \"consul-http-token\",\n \"tags\": {},\n \"value\": \"§\"\n}\n", "t"),
    ("$ echo $DUO_SECRET_KEY\n§\n$ date\n", "tb"),
    ("bob@web:~$ kubectl get secret x -o jsonpath='{.data.smtp-password}' | base64 -d; echo\n§\n$ date\n", "tb"),
    (">>> os.environ['STEAM_API_KEY']\n'§'\n>>> 1\n", "th"),
    ("julia> ENV[\"HONEYCOMB_API_KEY\"]\n\"§\"\n", "th"),
    ("Civo API key:\n§\n\nexpires: never\n", "tbh"),
    ("Creating Trello API secret ... done\n\n  §\n\nStore it now\n", "tbh"),
    ("ENCRYPTION_KEY:\n----\n§\n\nBinaryData\n", "th"),
    ("the Zerotier API token (§) was committed\n", "th"),
    ("For AI21 API key put § in the vault\n", "th"),
    ("our Drone user token \"§\" stopped working\n", "th"),
    ("the Adyen HMAC key for media-sync is §, rotate it\n", "th"),
    ("I used the Snowflake password § for the import\n", "w"),
    ("| Ably API key | ubuntu | § |\n", "th"),
    ("|RAILS_MASTER_KEY|§|2024-03-15|\n", "th"),
    ("12;nomad.api.token;§\n13;x;1\n", "th"),
    ("2|api_secret|§\n", "th"),
    ("<meta name=\"x-api-key\" content=\"§\">\n", "th"),
    // Text that is encoded as a whole
    ("GET /login?next=%2Fs%3Furl%3Dpostgresql%253A%252F%252Fapp%253A§%2540db.x%252Fy HTTP/1.1\n", "aw"),
    ("payload=%7B%22client_secret%22%3A%22§%22%2C%22region%22%3A%22eu%22%7D\n", "ht"),
    ("https://x/?headers=Authorization%3A%20Bearer%20§ done\n", "t"),
    // Cookies and requests
    ("export SESSION_COOKIE='JSESSIONID=§'\n", "th"),
    ("LINKEDIN_COOKIE=li_at=§\n", "t"),
    ("x.org\tFALSE\t/\tTRUE\t1789968283\tsession\t§\n", "th"),
    ("{ \"name\": \"Authorization\", \"value\": \"Token §\" },\n", "th"),
    ("http.Header{\"X-Consul-Token\":[]string{\"§\"}, \"A\":1}\n", "th"),
    // Quotes around a whole assignment, and signs in a value
    ("    - 'LDAP_BIND_PASSWORD=§'\n", "aswh"),
    ("\"Env\": [\n    \"ADMIN_PASSWORD=§\",\n", "awh"),
    // Commands and what they print
    ("vault operator unseal §\n", "bt"),
    ("java -jar jenkins-cli.jar -s https://x -auth bob:§ list-jobs\n", "ah"),
    ("printf %s '§' | gcloud secrets create x --data-file=-\n", "ah"),
    ("mongodump\0--host\0db\0--password\0§\0--db\0x\0\n", "awh"),
    ("{\"unseal_keys_b64\": [\n    \"§\",\n    \"x\"\n", "b"),
    ("SET PASSWORD FOR 'bob'@'%' = '§';\n", "ash"),
    ("    DefaultPassword    REG_SZ    §\n", "asw"),
    ("    Key Content            : §\n", "aw"),
    ("334 UGFzc3dvcmQ6\n§\n235 ok\n", "b"),
    ("{default_user,<<\"bob\">>},{default_pass,<<\"§\">>}\n", "ah"),
    ("\u{41f}\u{430}\u{440}\u{43e}\u{43b}\u{44c}: §\n", "w"),
    ("+ '[' -z § ']'\n", "t"),
    ("+ [[ -n § ]]\n", "t"),
    ("public string ApiSecret { get; set; } = \"§\";\n", "ht"),
    ("<tr><td class=\"e\">API_SECRET </td><td class=\"v\">§ </td></tr>\n", "ht"),
    ("{\"codecov\": {\n  \"enabled\": true,\n  \"token\": \"§\"\n}}\n", "h"),
    ("{\"u\": \"https://x/?a=1\\u0026password\\u003d§\"}\n", "ah"),
    // Calls
    ("auth := smtp.PlainAuth(\"\", \"bob@x.io\", \"§\", \"mail.x.io\")\n", "ah"),
    ("req.SetBasicAuth(\"bob\", \"§\")\n", "awh"),
    (".basic_auth(\"bob\", Some(\"§\"))\n", "awh"),
    ("let creds = Credentials::new(\"bob\".to_string(), \"§\".to_string());\n", "ah"),
    ("crypto.createHmac('sha256', '§').update(body)\n", "ah"),
    ("mysql_real_connect(conn, \"db.x\", \"bob\", \"§\", \"shop\", 0, NULL, 0);\n", "ah"),
    ("sessions.NewCookieStore([]byte(`§`))\n", "ah"),
    ("process.env['ADMIN_PASSWORD'] ??= '§';\n", "ah"),
    ("ENV['SMTP_PASSWORD'] ||= '§'\n", "ah"),
    ("Connect(\"${DB_PASS:-§}\")\n", "t"),
];

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }

    fn text(&mut self, alphabet: &str, least: usize, most: usize) -> String {
        let alphabet = alphabet.as_bytes();
        let length = least + self.below(most - least + 1);
        (0..length).map(|_| char::from(alphabet[self.below(alphabet.len())])).collect()
    }
}

const ALNUM: &str = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// A made-up password of this kind: it has a letter and a digit, as all but the worst have.
fn made_up(kind: u8, seed: u64) -> String {
    const WORDS: [&str; 8] = ["crimson", "otter", "copper", "harbor", "maple", "quartz", "lantern", "meadow"];
    let mut random = Random(seed * 31 + u64::from(kind));
    let body = match kind {
        b'a' => random.text(ALNUM, 7, 22),
        b's' => random.text(&(ALNUM.to_owned() + "!@#$%^&*-_+=?./:,;~"), 9, 22),
        b'u' => random.text(&(ALNUM.to_owned() + "%^-_+=.,~"), 9, 22),
        b'w' => {
            let (a, b) = (WORDS[random.below(8)], WORDS[random.below(8)]);
            return format!("{a}-{b}-{}", random.text("123456789", 2, 4));
        }
        b'h' => return random.text("0123456789abcdef", 32, 32),
        b'b' => return random.text(&(ALNUM.to_owned() + "+/"), 27, 27),
        _ => random.text(ALNUM, 40, 48),
    };
    // Neither a flag nor a variable.
    format!("k{body}7")
}

/// Places far from what tells them: at most so far as they are looked for.
fn far_places() -> Vec<String> {
    let pad = |n: usize| "x".repeat(n);
    let mut all = Vec::new();
    for n in [100, 180, 400, 600, 690, 700, 720, 760, 780, 900] {
        all.push(format!("curl -H 'A: {}' -u bob:kT7§q9 https://x\n", pad(n)));
        all.push(format!("curl -d '{}' \\\n  -u bob:kT7§q9 \\\n  --proxy-user eve:kT8§q9 https://x\n", pad(n)));
        all.push(format!("mongosh --host {} -p kT7§q9\n", pad(n)));
        all.push(format!("sqlcmd -S {} -P kT7§q9\n", pad(n)));
        all.push(format!("docker login {} -u bob -p kT7§q9\n", pad(n)));
        all.push(format!("Authorization: Digest username=\"{}\", response=\"kT7§q9\", nonce=\"kT8§q9\"\n", pad(n)));
        all.push(format!("kind: Secret\nmetadata:\n  name: {}\ndata:\n  a: {}1=\n  b: kT7§q9\nx: y\n", pad(n), pad(n)));
        all.push(format!("apiVersion: v1\ndata:\n  a: {}1=\n  b: kT7§q9\nkind: Secret\n", pad(n)));
        all.push(format!("apiVersion: v1\ndata:\n  a: {}1=\n  b: kT7§q9\nkind: ConfigMap\n", pad(n)));
        all.push(format!(
            "{{\"kty\":\"RSA\",\"n\":\"{}\",\"d\":\"kT7§aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3xY5zq9\"}}\n",
            pad(n)
        ));
        all.push(format!("echo kT7§q9 | docker login {} --password-stdin\n", pad(n / 4)));
        all.push(format!("https://{}:kT7§q9@host/\n", pad(n / 2)));
        all.push(format!("name kT7§q9 {}\npassword: |\n    kT7§q9\n    {}\nnext\n", pad(n), pad(n / 4)));
    }
    all.iter().map(|t| t.replace('§', "Zx81kqw")).collect()
}

#[test]
fn far_places_give_the_same_result_for_every_cut() {
    let mask = mask(&[]);
    let mut wrong = Vec::new();
    for text in far_places() {
        let input = format!("first line\n{text}then more text\n");
        let whole = redact_in_pieces(&mask, input.as_bytes(), &[]);
        let mut plans: Vec<Vec<usize>> = (1..input.len()).step_by(7).map(|at| vec![at]).collect();
        plans.extend([1, 2, 13, 64, 200].map(|n| vec![n; input.len() / n + 1]));
        for plan in plans {
            let cut = redact_in_pieces(&mask, input.as_bytes(), &plan);
            if cut != whole {
                let show = |t: &[u8]| name_placeholders(&String::from_utf8_lossy(t)).replace(&"x".repeat(50), "");
                wrong.push(format!("cut {:?}: {:?} not {:?}", &plan[..plan.len().min(2)], show(&cut), show(&whole)));
                break;
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

fn cases(seeds: u64) -> impl Iterator<Item = (&'static str, String, String)> {
    FORMS.iter().flat_map(move |(form, kinds)| {
        kinds.bytes().flat_map(move |kind| {
            (0..seeds).map(move |seed| {
                let value = made_up(kind, seed + form.len() as u64);
                (*form, form.replace('§', &value), value)
            })
        })
    })
}

#[test]
fn secrets_are_found_in_every_place() {
    let mask = mask(&[]);
    let mut wrong = Vec::new();
    let mut count = 0;
    for (form, input, value) in cases(12) {
        count += 1;
        let out = String::from_utf8(redact_in_pieces(&mask, input.as_bytes(), &[])).unwrap();
        if find_leak(&out, &value).is_some() || !out.contains("[redacted:") {
            wrong.push((form, value, name_placeholders(&out)));
        }
    }
    let missed = wrong.len();
    let mut shown: Vec<_> = Vec::new();
    for (form, value, out) in wrong {
        if shown.iter().filter(|(f, _, _)| *f == form).count() < 3 {
            shown.push((form, value, out));
        }
    }
    let lines: Vec<String> = shown.iter().map(|(f, v, o)| format!("{f:?} with {v}: {o:?}")).collect();
    assert!(missed == 0, "{missed} of {count} missed:\n{}", lines.join("\n"));
}

/// What is public stays: users, hosts and names.
#[test]
fn only_the_secret_is_taken_out() {
    let mask = mask(&[]);
    let mut wrong = Vec::new();
    for (form, input, value) in cases(1) {
        let out = name_placeholders(&String::from_utf8(redact_in_pieces(&mask, input.as_bytes(), &[])).unwrap());
        let (before, after) = form.split_once('§').unwrap();
        // Other values that are secret, too, and public beginnings that go with the value.
        let changed =
            ["other1x", "kty", "bob1x", "bar: ", "$9$", "django", "51:b:", "crimson"].iter().any(|t| form.contains(t));
        // Cookies behind the first, and the padding of base64, go with it.
        let tail = after.trim_start_matches('=');
        if !changed && !(out.starts_with(before) && (out.ends_with(tail) || form.contains("theme"))) {
            wrong.push(format!("{input:?} with {value}: {out:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_place_gives_the_same_result_for_every_cut() {
    let mask = mask(&[]);
    let mut wrong = Vec::new();
    for (form, text, _) in cases(1) {
        let input = format!("first line\n{text}then more text\n");
        let whole = redact_in_pieces(&mask, input.as_bytes(), &[]);
        let single = vec![1; input.len()];
        let mut plans: Vec<Vec<usize>> = (1..input.len()).map(|at| vec![at]).collect();
        plans.push(single);
        for plan in plans {
            let cut = redact_in_pieces(&mask, input.as_bytes(), &plan);
            if cut != whole {
                wrong.push(format!(
                    "{form:?} cut {:?}: {:?} not {:?}",
                    &plan[..plan.len().min(2)],
                    name_placeholders(&String::from_utf8_lossy(&cut)),
                    name_placeholders(&String::from_utf8_lossy(&whole))
                ));
                break;
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_pause_exposes_at_most_three_bytes() {
    let mask = mask(&[]);
    let mut wrong = Vec::new();
    for (form, text, value) in cases(1) {
        let input = format!("first line\n{text}then more text\n");
        let at = input.find(&value).unwrap();
        for stop in at..=at + value.len() {
            let out = redact_in_pieces(&mask, input.as_bytes(), &[stop, 0]);
            let out = String::from_utf8_lossy(&out).into_owned();
            if let Some(leak) = find_leak(&out, &value) {
                wrong.push(format!(
                    "{form:?} paused behind {:?}: {leak:?} in {:?}",
                    &input[at..stop],
                    name_placeholders(&out)
                ));
                break;
            }
        }
        // A pause after each byte.
        let pauses: Vec<usize> = (0..input.len()).flat_map(|_| [1, 0]).collect();
        let out = String::from_utf8_lossy(&redact_in_pieces(&mask, input.as_bytes(), &pauses)).into_owned();
        if let Some(leak) = find_leak(&out, &value) {
            wrong.push(format!("{form:?} typed: {leak:?} in {:?}", name_placeholders(&out)));
        }
    }
    assert!(wrong.is_empty(), "{} expose:\n{}", wrong.len(), wrong.join("\n"));
}

/// A place that repeats, or whose value has no end, is not held for ever.
#[test]
fn endless_places_are_bounded() {
    let mask = mask(&[]);
    let mut wrong = Vec::new();
    for (form, _) in FORMS {
        let (before, after) = form.split_once('§').unwrap();
        let value = format!("{before}{}", "aB3dE5fG".repeat(5_000));
        let lines = format!("{before}{}", "  a: b3Zx81kq\n".repeat(3_000));
        for text in [
            before.repeat(12_000 / before.len()),
            (before.to_owned() + after).repeat(12_000 / form.len()),
            value,
            lines,
        ] {
            let mut scrubber = countersign_redact::Scrubber::new(std::sync::Arc::clone(&mask));
            let mut max_held = 0;
            for piece in text.as_bytes().chunks(4096) {
                scrubber.input_buffer()[..piece.len()].copy_from_slice(piece);
                scrubber.accept_input(piece.len());
                while scrubber.take_chunk(false).is_some() {}
                max_held = max_held.max(scrubber.held_bytes());
            }
            scrubber.finish();
            if max_held > 34 * 1024 {
                wrong.push(format!("{form:?}: {max_held} bytes held"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Every byte, at the places where an argument, a name or a value begins, is read to the end and the same for every cut.
#[test]
fn any_byte_in_a_place_is_read_to_the_end() {
    let mask = mask(&[]);
    let mut wrong = Vec::new();
    for (n, (form, text, _)) in cases(1).enumerate() {
        let places: Vec<usize> = text.match_indices([' ', ':', '=', '"', '\n']).map(|(at, _)| at + 1).take(8).collect();
        for byte in (0..=127).chain([0xc3, 0xff]) {
            let at = places[(n + usize::from(byte)) % places.len()];
            let mut input = text.clone().into_bytes();
            input.insert(at, byte);
            let whole = redact_in_pieces(&mask, &input, &[]);
            if redact_in_pieces(&mask, &input, &vec![1; input.len()]) != whole {
                wrong.push(format!("{form:?} with {byte:#x} at {at}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// Halves of the places, and what may stand between them.
fn fragments() -> Vec<String> {
    let mut all: Vec<String> = [
        "\n",
        " ",
        "\"",
        "'",
        "\\",
        "\\\"",
        "=",
        ":",
        "|",
        "; ",
        "\r\n",
        "  ",
        "\x1b[0m",
        "\x1b[5;1H",
        "-p",
        "é",
        "\\\\",
        "$",
        "@",
        "{",
        "}",
        ",",
    ]
    .map(str::to_owned)
    .into();
    for (form, text, _) in cases(1) {
        let half = text.floor_char_boundary(form.len() / 2);
        all.extend([text[..half].to_owned(), text[half..].to_owned()]);
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn mixed_places_give_the_same_result_for_every_cut(
        parts in prop::collection::vec(any::<prop::sample::Index>(), 1..30),
        cuts in prop::collection::vec(1..40usize, 1..60),
    ) {
        let fragments = fragments();
        let input: String = parts.iter().map(|p| p.get(&fragments).as_str()).collect();
        let mask = mask(&[]);
        let whole = redact_in_pieces(&mask, input.as_bytes(), &[]);
        let cuts: Vec<usize> = cuts.iter().copied().cycle().take(input.len()).collect();
        for plan in [cuts, vec![1; input.len()]] {
            let other = redact_in_pieces(&mask, input.as_bytes(), &plan);
            prop_assert_eq!(String::from_utf8_lossy(&whole), String::from_utf8_lossy(&other), "{:?}", input);
        }
    }
}
