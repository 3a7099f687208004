//! Examples that `--help` ends with. A test holds every one of them to the arguments there are.

pub const DEMO: &str = "Examples:
  secsv demo                                  # and open secsv-demo.html";

pub const TRAIN: &str = "Examples:
  secsv train --dataset breast-cancer --out run
  secsv train --dataset own.csv --label outcome --clients 4 --out run
  secsv train --dataset digits --flip client-2:0.5 --out run          # plant a fault, and find it";

pub const EVALUATE: &str = "Examples:
  secsv evaluate run --report report.html     # the safest protocol that can test the model
  secsv evaluate run --json result.json --csv tables --quiet
  secsv evaluate run --estimator permutation --samples 20             # 20 clients or so: not every coalition
  secsv evaluate run --protocol nssv          # in the clear, without any protection

Protocols: blindsv unless its rules refuse the model; then one by name, after `secsv plan run --protocol secsv` has said
who could rebuild what. Values are in points: right answers per hundred test cases.";

pub const COMPARE: &str = "Examples:
  secsv compare run                           # every protocol that can test the model
  secsv compare run --protocols nssv,secsv --report comparison.html
  secsv compare run --estimator permutation --samples 20";

pub const DIFF: &str = "Examples:
  secsv diff before.json after.json
  secsv diff before.json after.json --report differences.html";

pub const PLAN: &str = "Examples:
  secsv plan run                              # measures this machine once, and remembers
  secsv plan run --protocol secsv --verbose
  secsv plan run --estimator permutation --samples 20";

pub const PRINCIPAL: &str = "Examples:
  secsv principal kit --state state --json result.json --report report.html
  secsv principal kit --state state --status 127.0.0.1:9464 --listen 0.0.0.0:7001
  secsv principal kit --state state --follow --values values --late 600";

pub const AUXILIARY: &str = "Examples:
  secsv auxiliary kit --state state
  secsv auxiliary kit --state state --follow";

pub const CLIENT: &str = "Examples:
  secsv client kit --data data --state state  # says what the owner must accept, and the WORD
  secsv client kit --data data --state state --accept-exposure WORD --report report.html
  secsv client kit --data data --state state --accept-exposure WORD --follow";

pub const REPORT: &str = "Examples:
  secsv report result.json --out report.html";

pub const REPRODUCE: &str = "Examples:
  secsv reproduce table-eval --tasks breast-cancer,digits
  secsv reproduce all --data data --scale 0.1 --out reproduced";

pub const BENCH: &str = "Examples:
  secsv bench linear
  secsv bench words --format json";

pub const KEYGEN: &str = "Examples:
  secsv keygen --id north --out kit           # then send kit/north.request.toml to whoever provisions";

pub const PROVISION: &str = "Examples:
  secsv provision run/federation.toml --requests requests --out kits --servers-did-not-aggregate \\
    --principal principal.example.org:7001 --auxiliary auxiliary.example.net:7002";

pub const RENEW: &str = "Examples:
  secsv renew kits --out renewed --days 365   # kits: what provision wrote, authority-key.pem included";

pub const PREFLIGHT: &str = "Examples:
  secsv preflight kit --state state           # says what the owner must accept, and the WORD
  secsv preflight kit --state state --data data --accept-exposure WORD";

pub const VERIFY: &str = "Examples:
  secsv verify states/*                       # copies of everybody's state directories
  secsv verify client-1/state --result result.json";

pub const COMPLETIONS: &str = "Examples:
  secsv completions bash > ~/.local/share/bash-completion/completions/secsv
  secsv completions zsh > ~/.zfunc/_secsv";

pub const MAN: &str = "Examples:
  secsv man --out man                         # then: man man/secsv-evaluate.1";

#[cfg(test)]
pub const ALL: [&str; 19] = [
    DEMO,
    TRAIN,
    EVALUATE,
    COMPARE,
    DIFF,
    PLAN,
    PRINCIPAL,
    AUXILIARY,
    CLIENT,
    REPORT,
    REPRODUCE,
    BENCH,
    KEYGEN,
    PROVISION,
    RENEW,
    PREFLIGHT,
    VERIFY,
    COMPLETIONS,
    MAN,
];
