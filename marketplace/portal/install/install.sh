#!/bin/sh
# Makes this computer a node of the Souk marketplace at @SERVER@:
#
#   curl -fsSL @SERVER@/install.sh | sh -s -- --token T
#
#   1 finds Python 3.11 or newer, or brings one through uv
#   2 fetches the agent's wheel, and checks its SHA-256 and the marketplace's signature before anything of it runs
#   3 checks this computer: PASS, FIX or SKIP, each FIX with what fixes it; goes on when there is nothing to fix
#   4 installs into an environment of its own: every package by the SHA-256 that stands in the signed wheel
#   5 enrols with the token; a node that is enrolled already keeps its identity
#   6 registers the service, starts it, waits until the node is listed, prints its page
#
# Run again it repairs. --dry-run does 1 to 3, shows the rest and changes nothing. --uninstall leaves nothing.
# All of it is one group of commands that ends on the last line: half a download does nothing.
{
set -eu

SERVER=@SERVER@
WHEEL=@WHEEL@
VERSION=@VERSION@
SHA256=@SHA256@
PUBLIC_KEY=@PUBLIC_KEY@

AGENT_USER=souk-agent
NEEDS_FIXING=8

usage() {
  cat <<END
Usage: curl -fsSL $SERVER/install.sh | sh -s -- --token T [options]

  --token T          works once, for an hour; SOUK_ENROL_TOKEN keeps it out of the process list
  --executor NAME    docker (the default), or process, which isolates nothing and takes your own
                     organisation's jobs only
  --allow-strangers  with process: jobs of everybody else too. Their programs run on this computer and
                     read whatever the agent's user can
  --price DOLLARS    per device and hour        --name NAME    of the node
  --region REGION    for example eu-west        --data FOLDER  where the node keeps its work
  --prefix FOLDER    where the agent is installed: as root /opt/souk-agent, else ~/.local/share/souk-agent
  --user NAME        as root: whom the agent runs as. With docker root itself, with the few capabilities
                     that its unit leaves it, for disks of a fixed size, internet for jobs and gangs; with
                     process $AGENT_USER, which is made. An enrolled node keeps whom it has
  --server-key KEY   refuse any other marketplace key than this
  --no-start         install and enrol only     --allow-downgrade   install over a newer version
  --force            go on although there is something to fix; with --uninstall: although programs run
  --dry-run          check, show every step, change nothing
  --uninstall        retire the node and remove everything

Other options are those of: souk-agent enrol
END
}

say() { printf '%s\n' "$*"; }
fail() { printf 'souk: %s\n' "$*" >&2; exit "${status:-1}"; }
quoted() { printf "'%s'" "$(printf '%s' "$1" | sed "s/'/'\\\\''/g")"; }

# Prints the heading of a stage, and how long the one before took.
stage() {
  now=$(date +%s)
  [ -z "${began:-}" ] || say "   took $((now - began)) s"
  began=$now
  [ -z "${1:-}" ] || say "== $1"
}

# Runs what changes something; --dry-run only shows it.
change() {
  if [ -n "$dry_run" ]; then say "   would run: $*"; else "$@"; fi
}

# Runs the rest of its words as the user that its first word names, from a folder that everybody may enter.
run_as() {
  who=$1
  shift
  if [ "$who" = "$me" ]; then (cd / && "$@")
  elif command -v runuser > /dev/null; then (cd / && runuser -u "$who" -- "$@")
  else (cd / && su -s /bin/sh "$who" -c 'exec "$@"' -- sh "$@")
  fi
}

read_options() {
  token=${SOUK_ENROL_TOKEN:-} dry_run='' uninstall='' force='' start=1 downgrade='' strangers='' options='' server_key=''
  executor=docker kind=auto prefix='' data='' user='' egress='' fabric_address='' fabric_privacy='' image='' serve=''
  interpreter=''
  while [ $# -gt 0 ]; do
    case $1 in
      --*=*) word=$1; shift; set -- "${word%%=*}" "${word#*=}" "$@" ;;
      -h | --help) usage; exit 0 ;;
      --dry-run) dry_run=1; shift ;;
      --uninstall) uninstall=1; shift ;;
      --force) force=1; shift ;;
      --no-start) start=''; shift ;;
      --allow-downgrade) downgrade=1; shift ;;
      --allow-strangers) strangers=1 options="$options $1"; shift ;;
      --*)
        [ $# -gt 1 ] || { status=2; fail "$1 needs a value; --help lists the options."; }
        case $1 in
          --token) token=$2 ;;
          --prefix) prefix=$2 ;;
          --data) data=$2 ;;
          --user) user=$2 ;;
          --server-key) server_key=$2 ;;
          --executor) executor=$2 ;;
          --device-kind) kind=$2; options="$options $1 $(quoted "$2")" ;;
          --egress) egress=$2; options="$options $1 $(quoted "$2")" ;;
          --fabric-address) fabric_address=$2; options="$options $1 $(quoted "$2")" ;;
          --train-image) image=$2; options="$options $1 $(quoted "$2")" ;;
          --serve-image) serve=$2; options="$options $1 $(quoted "$2")" ;;
          --runtime-python) interpreter=$2; options="$options $1 $(quoted "$2")" ;;
          --fabric-privacy) fabric_privacy=$2; options="$options $1 $(quoted "$2")" ;;
          *) options="$options $1 $(quoted "$2")" ;;
        esac
        shift 2 ;;
      *) status=2; fail "What is '$1'? --help lists the options." ;;
    esac
  done
  case $executor in docker | process) ;; *) status=2; fail "--executor is docker or process, not '$executor'." ;; esac
  [ -z "$strangers" ] || [ "$executor" = process ] || {
    status=2; fail '--allow-strangers is for --executor process alone: containers take everybody'"'"'s jobs.'; }
}

choose_places() {
  umask 022
  me=$(id -un)
  home=${HOME:-/}
  owner=''
  if [ "$(id -u)" = 0 ]; then
    link=/usr/local/bin/souk-agent
    : "${data:=/var/lib/souk-agent}"
    choose_user
    [ -n "$prefix" ] && link='' || prefix=/opt/souk-agent
  else
    [ "${user:=$me}" = "$me" ] || { status=2; fail "Only root can install for another user ($user)."; }
    link=$home/.local/bin/souk-agent
    : "${data:=$home/.souk-agent}"
    [ -n "$prefix" ] && link='' || prefix=$home/.local/share/souk-agent
  fi
  # A node that is enrolled already keeps what it chose.
  if [ -f "$data/config.json" ]; then
    executor=$(sed -n 's/^ *"executor": "\([a-z]*\)".*/\1/p' "$data/config.json")
  fi
  for folder in "$prefix" "$data"; do
    case $folder in
      / | "$home" | "$home/") status=2; fail "$folder is nobody's to fill and to remove; choose a folder of its own." ;;
      /*) ;;
      *) status=2; fail "$folder: write the whole path, from / on." ;;
    esac
  done
  agent=$prefix/current/bin/souk-agent
  # One installation updates itself from one marketplace.
  if [ -f "$prefix/market.json" ] && ! grep -q "\"public_key\": \"$PUBLIC_KEY\"" "$prefix/market.json"; then
    [ -n "$uninstall" ] || fail "$prefix belongs to another marketplace (or this one's key has changed). Choose another --prefix, or --uninstall it first."
  fi
}

# Who the agent runs as: who was asked for, else who a node that is enrolled already runs as, else who can do most.
choose_user() {
  if [ -d "$data" ]; then owner=$(stat -c %U "$data"); fi
  if [ -n "$user" ]; then return 0; fi
  if [ -f "$data/config.json" ]; then
    id "$owner" > /dev/null 2>&1 || fail "The owner of $data is no user of this computer any more. Say who the agent is to run as: --user NAME."
    user=$owner
  elif [ "$executor" = docker ]; then user=$me
  else user=$AGENT_USER
  fi
}

# Like another marketplace's node or key: what must not be repaired over.
check_identity() {
  [ -z "$server_key" ] || [ "$server_key" = "$PUBLIC_KEY" ] || fail "This marketplace's key is $PUBLIC_KEY, not the one of --server-key. Do not install; ask who gave you this command."
  [ -f "$data/config.json" ] || return 0
  grep -q "\"server_public_key\": \"$PUBLIC_KEY\"" "$data/config.json" ||
    fail "$data holds a node of another marketplace (or this one's key has changed). Choose another --data, or --uninstall it first."
}

# Only an idle node changes whom its agent runs as: a lesser one cannot look after what a greater one has made.
check_hand_over() {
  if [ -n "$owner" ] && [ "$owner" != "$user" ] && [ -z "$force" ] && [ -x "$agent" ] && [ -f "$data/config.json" ] && is_busy "$owner"; then
    status=6
    fail "Programs of customers run here, looked after by $owner. Drain the node first (souk-agent drain), then run this command with --user $user."
  fi
}

find_python() {
  old_ifs=$IFS IFS=:
  # shellcheck disable=SC2086 # PATH is a list
  set -- $PATH "$prefix/python/current/bin"
  IFS=$old_ifs
  for name in python3 python3.14 python3.13 python3.12 python3.11; do
    for folder in "$@"; do
      [ -x "$folder/$name" ] && serves "$folder/$name" || continue
      python=$folder/$name
      say "   $("$python" -V 2>&1) at $python"
      return 0
    done
  done
  bring_python
}

# Whether an interpreter is new enough, can make environments, and can be run by the agent's user.
serves() {
  "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2> /dev/null || return 1
  [ "$user" != "$me" ] || return 0
  someone=nobody
  if id "$user" > /dev/null 2>&1; then someone=$user; fi
  run_as "$someone" "$("$1" -c 'import os, sys; print(os.path.realpath(sys.executable))')" -c '' 2> /dev/null
}

bring_python() {
  uv=$(command -v uv 2> /dev/null || true)
  if [ -n "$dry_run" ]; then
    say '   would bring Python 3.12 through uv'
    fail "There is no Python 3.11 or newer with venv here; without --dry-run, uv would bring one. Or: apt install python3 python3-venv"
  fi
  if [ -z "$uv" ]; then
    say '   no Python serves; bringing uv'
    if ! { fetch https://astral.sh/uv/install.sh "$work/uv.sh" && UV_UNMANAGED_INSTALL=$work/uv sh "$work/uv.sh"; } > "$work/uv.log" 2>&1; then
      fail 'There is no Python 3.11 or newer with venv here, and uv cannot be fetched. Install one, for example: apt install python3 python3-venv'
    fi
    uv=$work/uv/uv
  fi
  mkdir -p "$prefix/python"
  if ! UV_PYTHON_INSTALL_DIR=$prefix/python "$uv" python install --no-bin 3.12 > "$work/uv.log" 2>&1; then
    rmdir "$prefix/python" "$prefix" 2> /dev/null || true
    fail "uv could not bring Python ($(tail -n 1 "$work/uv.log")). Install one, for example: apt install python3 python3-venv"
  fi
  python=$(UV_PYTHON_INSTALL_DIR=$prefix/python "$uv" python find --managed-python 3.12)
  ln -sfn "$(dirname "$(dirname "$python")")" "$prefix/python/current"
  say "   uv brought $("$python" -V) to $prefix/python"
}

fetch() {
  if command -v curl > /dev/null; then
    case $1 in https:*) only='=https' ;; *) only='=http,https' ;; esac
    curl -fsSL --proto "$only" --connect-timeout 15 --max-time 600 -o "$2" "$1"
  elif command -v wget > /dev/null; then wget -q -T 30 -t 2 -O "$2" "$1"
  else fail 'Neither curl nor wget is here. Install one, for example: apt install curl'
  fi
}

fetch_wheel() {
  for name in manifest.json manifest.sig "$WHEEL"; do
    fetch "$SERVER/dist/$name" "$work/$name" || { status=5; fail "$SERVER/dist/$name cannot be fetched. Is a proxy in between? Set HTTPS_PROXY and run the command again."; }
  done
  wheel=$work/$WHEEL
  "$python" - "$wheel" <<'END' > "$work/sha256" || fail "$WHEEL cannot be read."
import hashlib, sys
print(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest())
END
  [ "$(cat "$work/sha256")" = "$SHA256" ] ||
    fail "REFUSED: $WHEEL is not the file that this script names (SHA-256 $(cat "$work/sha256"), not $SHA256). Nothing was installed. Run the command again; if that does not help, tell the operator of the marketplace."
  { echo souk-release-v1; cat "$work/manifest.json"; } > "$work/signed"
  check_signature ||
    fail "REFUSED: the marketplace's key ($PUBLIC_KEY) did not sign this manifest. Nothing was installed. Tell the marketplace."
  if ! { grep -q "\"sha256\": \"$SHA256\"" "$work/manifest.json" && grep -q "\"version\": \"$VERSION\"" "$work/manifest.json"; }; then
    fail 'REFUSED: the signed manifest names another wheel than this script. Run the command again; if that does not help, tell the operator of the marketplace.'
  fi
  say "   $WHEEL: SHA-256 and signature are right (checked with $checker)"
}

# Ed25519 over $work/signed: by OpenSSL 3 where it is, else by the few lines of RFC 8032.
check_signature() {
  if openssl pkeyutl -help 2>&1 | grep -q -e -rawin; then
    checker=OpenSSL
    der=$(printf '302a300506032b6570032100%s' "$PUBLIC_KEY")
    "$python" -c 'import sys; sys.stdout.buffer.write(bytes.fromhex(sys.argv[1]))' "$der" > "$work/key.der"
    openssl pkeyutl -verify -pubin -keyform DER -inkey "$work/key.der" -rawin -in "$work/signed" -sigfile "$work/manifest.sig" > /dev/null 2>&1
  else
    checker=Python
    "$python" - "$PUBLIC_KEY" "$work/signed" "$work/manifest.sig" <<'END'
import hashlib, sys
p = 2**255 - 19; order = 2**252 + 27742317777372353535851937790883648493
d = -121665 * pow(121666, -1, p) % p
def add(P, Q):
    a, b = (P[1] - P[0]) * (Q[1] - Q[0]) % p, (P[1] + P[0]) * (Q[1] + Q[0]) % p
    c, e = 2 * P[3] * Q[3] * d % p, 2 * P[2] * Q[2] % p
    e, f, g, h = b - a, e - c, e + c, b + a
    return e * f % p, g * h % p, f * g % p, e * h % p
def multiply(s, P):
    Q = (0, 1, 1, 0)
    while s:
        if s & 1: Q = add(Q, P)
        P, s = add(P, P), s >> 1
    return Q
def point(data):
    y = int.from_bytes(data, "little"); sign = y >> 255; y &= (1 << 255) - 1
    x2 = (y * y - 1) * pow(d * y * y + 1, -1, p) % p
    x = pow(x2, (p + 3) // 8, p)
    if (x * x - x2) % p: x = x * pow(2, (p - 1) // 4, p) % p
    if y >= p or (x * x - x2) % p or (x == 0 and sign): raise ValueError("not a point")
    if x & 1 != sign: x = p - x
    return x, y, 1, x * y % p
key, message, signature = bytes.fromhex(sys.argv[1]), open(sys.argv[2], "rb").read(), open(sys.argv[3], "rb").read()
s = int.from_bytes(signature[32:], "little")
if len(signature) != 64 or s >= order: sys.exit(1)
h = int.from_bytes(hashlib.sha512(signature[:32] + key + message).digest(), "little") % order
base = point((4 * pow(5, -1, p) % p).to_bytes(32, "little"))
A, B = multiply(s, base), add(point(signature[:32]), multiply(h, point(key)))
sys.exit((A[0] * B[2] - B[0] * A[2]) % p != 0 or (A[1] * B[2] - B[1] * A[2]) % p != 0)
END
  fi 2> /dev/null
}

preflight() {
  code=0
  # Out of the wheel, with the standard library alone: nothing is installed yet.
  PYTHONPATH=$wheel PYTHONDONTWRITEBYTECODE=1 "$python" -P -m provider_agent.preflight \
    --server "$SERVER" --manifest "$work/manifest.json" --data "$data" --executor "$executor" --device-kind "$kind" \
    --user "$user" --egress "$egress" --fabric-address "$fabric_address" --fabric-privacy "$fabric_privacy" \
    --train-image "$image" ${serve:+--serve-image "$serve"} ${interpreter:+--runtime-python "$interpreter"} || code=$?
  [ "$code" = 0 ] && return 0
  [ "$code" = $NEEDS_FIXING ] || fail 'The checks broke off.'
  if [ -n "$force" ]; then say '   going on all the same (--force)'; return 0; fi
  status=$NEEDS_FIXING
  fail 'Nothing was changed. Do what the FIX lines say and run the same command again; --force goes on regardless.'
}

install_wheel() {
  release=$prefix/releases/$(printf %.12s "$SHA256")
  if [ -f "$release/.complete" ] && [ -x "$agent" ] && [ "$(readlink "$prefix/current")" = "$release" ] &&
    "$agent" --version > /dev/null 2>&1; then
    say "   version $VERSION is there already, and whole"
    [ -n "$dry_run" ] || { note_market; [ -e "$prefix/good" ] || point good; }
    return 0
  fi
  # A rollout may have updated this computer beyond what new nodes install: it is repaired with its own version.
  if is_ahead; then
    if [ -f "$prefix/current/.complete" ] && "$agent" --version > /dev/null 2>&1; then
      say "   version $there is there, newer than $VERSION, which new nodes install; it stays"
      [ -n "$dry_run" ] || { note_market; release=$(readlink "$prefix/current"); [ -e "$prefix/good" ] || point good; }
      return 0
    fi
    fetch_own_release
    release=$prefix/releases/$(printf %.12s "$SHA256")
  fi
  # The updater of an earlier installation must not work on the same folders.
  if [ -z "$dry_run" ] && [ -d "$prefix" ] && command -v flock > /dev/null; then
    exec 9>> "$prefix/update.lock"
    flock -w 300 9 || { status=6; fail "An update of $prefix goes on; run the same command again later."; }
  fi
  if [ "$user" != "$me" ] && ! id "$user" > /dev/null 2>&1; then make_user; fi
  change rm -rf "$release"  # a half-done one
  change mkdir -p "$prefix/releases"
  change "$python" -m venv "$release"
  if [ -n "$dry_run" ]; then
    say "   would run: pip install --require-hashes -r requirements.lock, then $WHEEL, in $release"
  else
    install_packages "$("$python" -c 'import sys, zipfile; zipfile.ZipFile(sys.argv[1]).extract("provider_agent/packaging/requirements.lock", sys.argv[2]); print(sys.argv[2] + "/provider_agent/packaging/requirements.lock")' "$wheel" "$work")"
    printf '%s\n' "$VERSION" > "$release/.complete"
    note_market
    rm -f "$prefix/update.json"  # what became of earlier updates is over
  fi
  # `good` is what updates roll back to; who runs this command vouches for it.
  for name in current good; do change point "$name"; done
  if [ -n "$link" ]; then change mkdir -p "$(dirname "$link")"; change ln -sfn "$agent" "$link"; fi
  for old in "$prefix"/releases/*; do
    [ "$old" = "$release" ] || [ ! -d "$old" ] || change rm -rf "$old"
  done
  [ -n "$dry_run" ] || exec 9>&-
}

# A link of the prefix names the new release, in one step.
point() { ln -sfn "$release" "$prefix/.$1.new" && "$python" -c 'import os, sys; os.replace(*sys.argv[1:])' "$prefix/.$1.new" "$prefix/$1"; }

# Whose releases the updater takes: pinned here, by who runs this command.
note_market() {
  "$python" - "$work/manifest.json" "$prefix/market.json" "$SERVER" "$PUBLIC_KEY" <<'END'
import json, os, sys
manifest, path, server, key = sys.argv[1:]
with open(path + ".new", "w") as out:
    json.dump({"server": server, "sync_server": json.load(open(manifest))["sync_server"], "public_key": key}, out)
os.replace(path + ".new", path)
END
}

# Every package must be the one whose SHA-256 stands in the lock; the lock lies in the wheel, which is signed.
install_packages() {
  cp "$wheel" "$release/$WHEEL"  # stays: the environment of the process executor is made of it too
  pip --require-hashes --only-binary :all: -r "$1" && pip --no-deps --no-index "$release/$WHEEL" && return 0
  cat "$work/pip.log" >&2
  fail 'The packages could not be installed. Behind a proxy, set HTTPS_PROXY (and PIP_INDEX_URL for a mirror), then run the command again.'
}

pip() {
  PIP_USER=0 "$release/bin/python" -m pip install --quiet --disable-pip-version-check --no-input "$@" >> "$work/pip.log" 2>&1
}

# Whether a newer version than this script's is installed, whole or not; what it is called then is in $there.
is_ahead() {
  [ -z "$downgrade" ] || return 1
  there=
  for name in current good; do
    [ -n "$there" ] || there=$(cat "$prefix/$name/.complete" 2> /dev/null || true)
  done
  : "${there:=$("$agent" --version 2> /dev/null || true)}"
  [ -n "$there" ] || return 1
  "$python" - "$there" "$VERSION" <<'END'
import re, sys
there, new = (tuple(map(int, re.findall(r"\d+", text.split("+")[0]))) for text in sys.argv[1:])
sys.exit(new >= there)
END
}

# The release that is installed and does not run, from the marketplace, in place of the one for new nodes.
fetch_own_release() {
  own=$SERVER/dist/releases/$there for_new_nodes=$VERSION
  say "   version $there is there and does not run; fetching it again"
  fetch "$own/manifest.json" "$work/manifest.json" && fetch "$own/manifest.sig" "$work/manifest.sig" ||
    fail "REFUSED: version $there is installed and does not run, and the marketplace does not offer it any more. $for_new_nodes is older, and an old version may have holes that were closed since; --allow-downgrade if you mean it."
  { echo souk-release-v1; cat "$work/manifest.json"; } > "$work/signed"
  check_signature || fail "REFUSED: the marketplace's key ($PUBLIC_KEY) did not sign version $there. Nothing was installed. Tell the marketplace."
  "$python" - "$work/manifest.json" "$there" "$SERVER" <<'END' > "$work/own" || fail "REFUSED: the signed manifest is not that of version $there of this marketplace."
import json, re, sys
manifest = json.load(open(sys.argv[1]))
assert (manifest["kind"], manifest["version"], manifest["server"]) == ("souk-agent-release", *sys.argv[2:])
assert re.fullmatch(r"gpusouk-[0-9.]+-py3-none-any\.whl", manifest["wheel"])
print(manifest["wheel"], manifest["sha256"])
END
  read -r WHEEL SHA256 < "$work/own"
  VERSION=$there wheel=$work/$WHEEL
  fetch "$SERVER/dist/$WHEEL" "$wheel" || { status=5; fail "$SERVER/dist/$WHEEL cannot be fetched. Run the command again."; }
  "$python" -c 'import hashlib, sys; sys.exit(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest() != sys.argv[2])' "$wheel" "$SHA256" ||
    fail "REFUSED: $WHEEL is not the file that was signed. Nothing was installed. Run the command again."
}

make_user() {
  if command -v useradd > /dev/null; then
    change useradd --system --home-dir "$data" --no-create-home --shell /usr/sbin/nologin "$user"
  else change adduser -S -D -H -h "$data" -s /sbin/nologin "$user"
  fi
  change mkdir -p "$prefix"
  [ -n "$dry_run" ] || printf '%s\n' "$user" > "$prefix/made-user"
}

prepare_data() {
  if [ "$user" != "$me" ]; then
    if [ "$executor" = docker ] && grep -q '^docker:' /etc/group; then change usermod -aG docker "$user"; fi
    change mkdir -p "$data"
    [ -n "$owner" ] || change chown "$user" "$data"
  fi
  if [ -n "$owner" ] && [ "$owner" != "$user" ]; then hand_over; fi
}

# The agent is to run as somebody else than so far: it ends first. Files of jobs' own users, and what is mounted, stay.
hand_over() {
  if [ -f "$data/config.json" ] || [ -f "$data/transport.key" ]; then
    say "   the agent ran as $owner; from now on as $user"
    if [ -x "$agent" ] && [ -f "$data/config.json" ]; then change "$agent" service stop --data "$data" | sed 's/^/   /'; fi
    change find "$data" -xdev -user "$(stat -c %u "$data")" -exec chown -h "$user" '{}' +
  fi
  change chown "$user" "$data"
}

# Whether customers' programs run here.
is_busy() {
  run_as "$1" "$agent" status --data "$data" --json 2> /dev/null | grep -q '"state": "\(assigned\|preparing\|running\|stopping\)"'
}

# Who uses this installation: the last one to go takes it along.
note_node() {
  [ -n "$dry_run" ] || grep -qxF "$data" "$prefix/nodes" 2> /dev/null || printf '%s\n' "$data" >> "$prefix/nodes"
}

enrol() {
  if [ -f "$data/config.json" ]; then
    say "   this node is enrolled already and keeps its identity"
    return 0
  fi
  if [ -n "$dry_run" ]; then
    say "   would run: souk-agent enrol --server $SERVER --executor $executor --data $data$options"
    return 0
  fi
  code=0
  export SOUK_ENROL_TOKEN="$token"  # not on a command line: every user may read those
  eval "run_as \"\$user\" \"\$agent\" enrol --server \"\$SERVER\" --executor \"\$executor\" --data \"\$data\" $options" \
    > "$work/enrol.log" 2>&1 || code=$?
  unset SOUK_ENROL_TOKEN
  sed 's/^/   /' "$work/enrol.log"
  [ "$code" = 0 ] || {
    status=$code
    case $code in
      4) fail 'The marketplace refused the token. A new one: souk provider add-node. Run the new command; what is installed is kept.' ;;
      5) fail 'The marketplace does not answer. Run the same command again later; what is installed is kept.' ;;
      *) fail 'The node is not enrolled. Fix what is reported above and run the same command again; what is installed is kept.' ;;
    esac
  }
}

serve() {
  if [ -z "$start" ]; then say "   not started (--no-start); later: $agent service start --data $data"; return 0; fi
  if [ -n "$dry_run" ]; then
    say "   would run: souk-agent service start --data $data, then wait until the node is listed"
    return 0
  fi
  "$agent" service start --program "$agent" --data "$data" --user "$user" 2>&1 | sed 's/^/   /' | tee "$work/service.log"
  ! grep -q 'souk-agent:' "$work/service.log" || { status=9; fail 'The agent could not be started; run the same command again when that is fixed.'; }
}

wait_until_listed() {
  [ -n "$start" ] && [ -z "$dry_run" ] || return 0
  # Each line as it comes: a first start may take minutes.
  rm -f "$work/code"
  { "$agent" service wait --data "$data" 2>&1 || echo $? > "$work/code"; } | sed -u 's/^/   /'
  [ ! -f "$work/code" ] || { status=$(cat "$work/code"); fail "Installed and enrolled, but not for rent yet: $agent doctor --data $data"; }
}

uninstall() {
  if [ -f "$data/config.json" ] && [ -x "$agent" ]; then
    if [ -z "$force" ] && is_busy "$user"; then
      status=6
      fail 'Programs of customers run here. Drain the node first (souk provider nodes; the portal), or lose their work and your reputation with --force.'
    fi
    change "$agent" service stop --data "$data" | sed 's/^/   /'
    if [ -n "$dry_run" ]; then say '   would retire the node'
    else
      run_as "$user" "$agent" retire --yes --data "$data" 2>&1 | sed 's/^/   /'
      [ ! -f "$data/config.json" ] || [ -n "$force" ] ||
        { status=5; fail 'The marketplace could not be reached to retire the node. Run it again later, or --force to remove all the same (retire the node in the portal).'; }
    fi
  fi
  # Disks of jobs that ended badly.
  while read -r _ at _; do
    case $at in "$data"/*) change umount "$at" ;; esac
  done < /proc/mounts
  for own in "$data/config.json" "$data/config.retired.json" "$data/transport.key" "$data/agent.lock"; do
    [ ! -e "$own" ] || { change rm -rf "$data"; break; }
  done
  if [ -f "$prefix/nodes" ]; then
    grep -vxF "$data" "$prefix/nodes" > "$work/nodes" || true
    if [ -s "$work/nodes" ]; then
      [ -n "$dry_run" ] || cat "$work/nodes" > "$prefix/nodes"
      say "   other nodes of this computer use $prefix; it stays"
      return 0
    fi
  fi
  if [ -f "$prefix/made-user" ]; then
    made=$(cat "$prefix/made-user")
    if [ -z "$made" ]; then made=$user; fi  # earlier installers did not write whom
    if [ "$made" = "$me" ]; then made=$AGENT_USER; fi
    change userdel "$made" || true
    rmdir "$data" 2> /dev/null || true
  fi
  if [ -d "$prefix/releases" ]; then change rm -rf "$prefix"; fi
  if [ -n "$link" ] && [ -L "$link" ]; then change rm -f "$link"; fi
}

main() {
  unset PYTHONPATH PYTHONHOME  # packages from elsewhere would look as if they were installed
  read_options "$@"
  choose_places
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  if [ -n "$uninstall" ]; then
    stage "removing the node in $data"
    uninstall
    stage
    if [ -n "$dry_run" ]; then say 'Nothing was changed (--dry-run).'; else say 'Nothing of it is left.'; fi
    return 0
  fi
  [ -n "$token" ] || [ -n "$dry_run" ] || [ -f "$data/config.json" ] ||
    { status=2; fail 'A token is needed: souk provider add-node prints the whole install command. --help lists the options.'; }
  check_identity
  check_hand_over
  stage 'Python'; find_python
  stage 'the agent'; fetch_wheel
  stage 'this computer'; preflight
  stage "installing into $prefix"; install_wheel; prepare_data
  stage 'enrolling'; enrol; note_node
  stage 'service'; serve
  stage 'listing'; wait_until_listed
  stage
  if [ -n "$dry_run" ]; then say 'Nothing was changed (--dry-run).'; else say 'Done. souk-agent status tells what it does.'; fi
}

main "$@"; exit; }
