"""What secrets look like, and what their fields are called: the forms that runs.redaction searches for.

Each expression either fails within a bounded number of characters, or takes what it has scanned, or begins
only where a run of its characters begins: so no text makes it scan the same characters again and again.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

# Characters that are passed over or read as others: invisible ones, and digits of other scripts.
FOLDS = re.compile(
    "[\u00ad\u0300-\u036f\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\U000e0000-\U000e01ef]|(?![0-9])\\d"
)

TOKENS = re.compile(
    r"als_[0-9a-f]{8}_[0-9a-zA-Z_]{8,}"  # our own
    r"|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}"
    r"|gl(?:pat|ptt|dt|rt|cbt|ft|soat|agent)-[\w-]{20,}"
    r"|whsec_[A-Za-z0-9+/=]{8,}|[sr]k_(?:live|test)_[A-Za-z0-9]{8,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Z0-9])|AIza[0-9A-Za-z_-]{35}|ya29\.[0-9A-Za-z_-]{20,}"
    r"|GOCSPX-[0-9A-Za-z_-]{20,}|xox[abeoprs]-[0-9A-Za-z-]{10,}|xapp-[0-9]-[0-9A-Za-z-]{10,}"
    r"|hooks\.slack\.com/services/[A-Za-z0-9/]{20,}|AGE-SECRET-KEY-1[0-9A-Z]{50,}"
    r"|pypi-[A-Za-z0-9_-]{50,}|dop_v1_[0-9a-f]{64}|atlasv1\.[\w-]{20,}"
    r"|(?<![A-Za-z0-9])(?:"  # short beginnings, which words end with
    r"sk_[A-Za-z0-9]{16,}|sk-(?:ant|proj|svcacct|or)-[\w-]{20,}|sk-[A-Za-z0-9]{20,}"
    r"|SG\.[\w-]{16,64}\.[\w-]{16,}|key-[0-9a-f]{32}(?![0-9a-f])|npm_[A-Za-z0-9]{36}|hf_[A-Za-z0-9]{30,}"
    r"|shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}|sq0(?:atp|csp|idp)-[\w-]{22,}|EAAA[\w-]{60,}"
    r"|(?:lin_api|ntn|gsk|r8|tskey)[_-][A-Za-z0-9]{30,}|hvs\.[\w-]{24,}|glc_[A-Za-z0-9+/=]{32,}"
    r"|[0-9]{8,10}:AA[\w-]{32,})"
)
PEM = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    r".*?(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)",
    re.DOTALL | re.IGNORECASE,
)
# Three runs with dots between; a run is entered at its beginning only.
JWT = re.compile(r"(?<![\w-])(?P<head>[\w-]{11,}+)\.[\w-]{8,}+\.[\w-]*+")
USERINFO = re.compile(r"(?<=://)(?P<user>[^\s/?#\"'<>\\\0]{1,500})@")
CREDENTIALS = re.compile(
    r"(?i)(?<![\w-])(?:bearer[ \t]{1,4}(?P<bearer>[\w.~+/=-]{4,}+)|basic[ \t]{1,4}(?P<basic>[\w+/]{8,}+=*+))"
)
SCHEME = re.compile(r"(?i)(?:bearer|basic|token|apikey|digest|negotiate|dpop|hawk)[ \t]+")
LOOKS_RANDOM = re.compile(r"[0-9=+]|[a-z][A-Z]|.{32}", re.DOTALL)

# A name with what follows it: a sign of assignment, and perhaps an opening quote, also one that is escaped.
ASSIGNED = re.compile(
    r"(?<![\w.%-])(?P<name>(?:[\w.-]|%(?!3[dD])){1,200}+)(?:\\{0,4}[\"'])?"
    r"(?P<sign>[ \t]{0,8}(?:=>|:=|==?|:|%3[dD])[ \t]{0,8})(?P<open>\\{0,4}[\"']|)"
)
FLAG = re.compile(r"(?<![\w-])(?P<name>--[\w-]{1,80}+)(?P<sign>[ \t]{1,4})(?P<open>\\{0,4}[\"']|)(?=[^\s-])")
QUOTED = {sign: re.compile(rf"(?:[^{sign}\\\r\n]|\\[^\r\n])*+") for sign in "\"'"}
# How far a value without quotes goes: a parameter, a header's whole field, or a word.
REST = {
    "query": re.compile(r"[^\s&\"'<>\\#\0]*"),
    "authorization": re.compile(
        r"(?i)(?:digest|hawk|aws4-hmac-sha256)\b[^\r\n\0]*|(?:bearer|basic|token|apikey|negotiate|dpop)"
        r"[ \t]+[^\s\"'\\\0,;]*|[^\s\"'\\\0,;]*"
    ),
    "cookie": re.compile(r"[^\r\n\"'\\\0]*"),
    "password": re.compile(r"[^\s\"',;&<>)}\]\\\0]*"),
}
NO_SECRET = re.compile(
    r"(?i)|true|false|null|none|nil|undefined|[0-9]{1,2}|\{[^{}]*\}?|\$\{?\w*\}?|<[^<>]*>?|[*.•…x\0-]+|\[removed\]"
    r"|tok_[0-9a-f]{32}"  # our own id of a token, as an actor's: it opens nothing
)

# Under which of its members an object that has a "value" says whose value it is.
NAMED_BY = ("name", "key", "header", "field")

HEADERS = frozenset({"authorization", "proxyauthorization", "cookie", "setcookie"})
NAMES = frozenset(
    (
        *("password", "passwd", "pwd", "passphrase", "passcode", "passwort", "kennwort"),
        *("motdepasse", "contrasena", "secret", "token", "apikey", "apikeys", "accesskey"),
        *("accesskeyid", "secretkey", "privatekey", "signingkey", "encryptionkey", "authkey", "sharedkey"),
        *("masterkey", "accountkey", "sharedaccesskey"),
        *("credential", "credentials", "jwt", "otp", "totp", "mfacode"),
        *("pin", "cvc", "cvv", "cvv2", "cardnumber", "creditcard", "pan"),
        *("sessionid", "sessid", "phpsessid", "jsessionid", "csrftoken", "xcsrftoken", "authorization"),
        *("cookie", "xapikey", "xauthtoken", "xaccesstoken", "connectionstring"),
    )
)
ENDS = (
    *("password", "passwd", "passphrase", "secret", "token", "apikey", "accesskey", "secretkey"),
    *("privatekey", "signingkey", "authorization", "cookie", "cardnumber", "credential", "credentials"),
)
# Words that prose has before a colon, too.
WEAK = frozenset(
    {"token", "secret", "pin", "pan", "otp", "credential", "credentials", "cookie", "creditcard"}
)
# Parameters of an address: secret whatever they hold, and secret when it looks like a key.
IN_QUERY = frozenset({"sig", "signature", "xamzsignature", "xamzcredential", "xgoogsignature", "hmac"})
PERHAPS_IN_QUERY = frozenset({"key", "code", "auth", "pass", "session", "sid", "ticket", "hash", "assertion"})


@lru_cache(maxsize=4096)
def normal(name: str) -> str:
    """A field's name without signs and capitals: `X-Api-Key`, `xApiKey` and `x_api_key` are one."""
    plain = unicodedata.normalize("NFKC", name[:200]).casefold()
    return "".join(sign for sign in plain if sign.isalnum())


def sounds_secret(name: str) -> bool:
    """Whether a normal name is one of a secret."""
    return name in NAMES or name.endswith(ENDS)


# Cards --------------------------------------------------------------------------------------------

CARD = re.compile(
    r"(?<![0-9A-Za-z\0])(?<![0-9]\.)"
    r"(?:[0-9]{14,16}|62[0-9]{14,17}|[0-9]{4}(?P<a>[ -])[0-9]{4}(?P=a)[0-9]{4}(?P=a)[0-9]{4}"
    r"|3[0-9]{3}(?P<b>[ -])[0-9]{6}(?P=b)[0-9]{4,5})(?![0-9A-Za-z\0])(?!\.[0-9])"
)
ISSUED = re.compile(
    r"4[0-9]{15}|(?:5[1-5]|2[2-7])[0-9]{14}|3[47][0-9]{13}|3(?:0[0-5]|[689][0-9])[0-9]{11}"
    r"|6(?:011|4[4-9][0-9]|5[0-9]{2})[0-9]{12}|35[0-9]{14}|62[0-9]{14,17}"
)


def is_card(text: str) -> bool:
    """Whether digits are a card's number: begun as an issuer begins them, with Luhn's check digit."""
    digits = digits_of(text)
    return ISSUED.fullmatch(digits) is not None and _luhn(digits)


def digits_of(text: str) -> str:
    """A card's number without what stands between its groups."""
    return text.replace(" ", "").replace("-", "")


def _luhn(digits: str) -> bool:
    total = 0
    for place, sign in enumerate(reversed(digits)):
        number = int(sign) * (1 + place % 2)
        total += number - 9 if number > 9 else number
    return total % 10 == 0
