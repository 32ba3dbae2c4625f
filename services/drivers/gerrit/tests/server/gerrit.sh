#!/usr/bin/env bash
# One real Gerrit on loopback, for as long as whoever started it keeps standard input open.
#
#   gerrit.sh FOLDER HTTP_PORT SSH_PORT
#
# Prints READY once it answers, or CANNOT and why. Then takes lines: `stop` (prints STOPPED), `kill` (as a crash would;
# prints STOPPED), `start` (prints READY). When its input ends, whatever the cause, it ends the server.
#
# The server's jars are had once by their Maven coordinates into ${GATELOG_CACHE:-~/.cache/gatelog}/gerrit-driver. No war
# is published there, but two libraries of each release hold the whole server between them, without web UI and plugins.
# GERRIT_VERSION names another release than the newest that the Java found can run.
#
# Accounts (the password is the name and "-secret"; the SSH keys are in FOLDER/keys):
#   admin   everything, password "secret"       ci    streams events, votes Verified, submits, pushes
#   core    Code-Review, Workflow, abandons     dev   pushes changes
set -uo pipefail
umask 077

FOLDER=$1 HTTP=$2 SSH=$3
SITE=$FOLDER/site
STORE=${GATELOG_CACHE:-$HOME/.cache/gatelog}/gerrit-driver
URL=http://127.0.0.1:$HTTP
SERVER=

cannot() {
    echo "CANNOT $*"
    exit 0
}

# --- what is needed ---

find_java() {
    local candidate version
    JAVA= NEWEST=0
    for candidate in "$(command -v java || true)" /usr/lib/jvm/*/bin/java; do
        [ -x "$candidate" ] || continue
        version=$("$candidate" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -1)
        if [ "${version:-0}" -gt "$NEWEST" ]; then NEWEST=$version JAVA=$candidate; fi
    done
    [ "$NEWEST" -ge 17 ] || cannot "there is no Java 17 or newer"
    # The last release for Java 17, and one for 21.
    if [ -z "${GERRIT_VERSION:-}" ]; then
        if [ "$NEWEST" -ge 21 ]; then GERRIT_VERSION=3.13.5; else GERRIT_VERSION=3.10.2; fi
    fi
    JARS=$STORE/jars-$GERRIT_VERSION
    MADE=$STORE/site-$GERRIT_VERSION-1.tar
}

dependency() {
    echo "<dependency><groupId>$1</groupId><artifactId>$2</artifactId><version>$3</version>"
    echo "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions></dependency>"
}

download() {
    [ -e "$JARS/complete" ] && return
    command -v mvn >/dev/null || cannot "Gerrit's jars are not in $JARS, and there is no Maven to get them with"
    local work=$STORE/download-$$ part
    mkdir -p "$work"
    {
        echo "<project><modelVersion>4.0.0</modelVersion><groupId>x</groupId><artifactId>x</artifactId><version>1</version><dependencies>"
        dependency com.google.gerrit gerrit-plugin-api "$GERRIT_VERSION"
        dependency com.google.gerrit gerrit-acceptance-framework "$GERRIT_VERSION"
        # For HTTP passwords.
        for part in bcprov bcpg bcpkix bcutil; do dependency org.bouncycastle $part-jdk18on 1.80; done
        echo "</dependencies></project>"
    } >"$work/pom.xml"
    if ! mvn -q -B -Dstyle.color=never -f "$work/pom.xml" dependency:copy-dependencies -DoutputDirectory="$work/jars" \
        -Dmaven.repo.local="$work/m2" >"$work/log" 2>&1; then
        local why
        why=$(grep -m1 ERROR "$work/log" | tr -cd '[:print:]' | cut -c1-300)
        rm -rf "$work"
        cannot "Maven did not get Gerrit $GERRIT_VERSION: $why"
    fi
    # These jars do not say their version, and clients decide by it.
    mkdir -p "$work/jars/version/com/google/gerrit/common"
    echo "$GERRIT_VERSION" >"$work/jars/version/com/google/gerrit/common/Version"
    touch "$work/jars/complete"
    rm -rf "$JARS"
    mv -T "$work/jars" "$JARS"
    rm -rf "$work"
}

run_java() {
    local flags="-Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    if [ "$NEWEST" -ge 24 ]; then flags="$flags --enable-native-access=ALL-UNNAMED --sun-misc-unsafe-memory-access=allow"; fi
    # shellcheck disable=SC2086 # Several words.
    exec "$JAVA" $flags -Duser.home="$FOLDER" \
        -Dflogger.backend_factory='com.google.common.flogger.backend.log4j.Log4jBackendFactory#getInstance' \
        -Dflogger.logging_context='com.google.gerrit.server.logging.LoggingContext#getInstance' \
        -cp "$JARS/version:$JARS/*" com.google.gerrit.launcher.GerritLauncher "$@"
}

# --- the site ---

set_up() {
    git config -f "$SITE/etc/gerrit.config" "$1" "$2"
}

configure() {
    mkdir -p "$SITE/etc"
    set_up gerrit.basePath git
    set_up gerrit.canonicalWebUrl "$URL/"
    set_up auth.type DEVELOPMENT_BECOME_ANY_ACCOUNT
    set_up httpd.listenUrl "$URL/"
    set_up sshd.listenAddress "127.0.0.1:$SSH"
    set_up sshd.advertisedAddress "127.0.0.1:$SSH"
    set_up index.type lucene
    # Written at once: what a crash takes from the index would be missing for minutes.
    set_up index.changes_open.commitWithin 0
    set_up index.changes_closed.commitWithin 0
    set_up cache.directory cache
    set_up sendemail.enable false
    set_up change.submitWholeTopic true
    set_up change.mergeabilityComputationBehavior API_REF_UPDATED_AND_CHANGE_REINDEX
    # A test that listens is up for long; a site's own limit is 64 connections.
    set_up sshd.threads 4
    set_up httpd.maxThreads 10
}

ask() { # METHOD PATH BODY, as admin
    curl -sS --fail-with-body -u admin:secret -X "$1" -H 'Content-Type: application/json' "$URL/a/$2" -d "$3" >/dev/null
}

label() { # NAME VALUES
    ask PUT "projects/All-Projects/labels/$1" "{\"function\": \"NoBlock\", \"values\": $2}" &&
        ask PUT "projects/All-Projects/submit_requirements/$1" \
            "{\"name\": \"$1\", \"submittability_expression\": \"label:$1=MAX AND -label:$1=MIN\", \"allow_override_in_child_projects\": true}"
}

allow() { # GROUP MIN MAX
    echo "{\"rules\": {\"$1\": {\"action\": \"ALLOW\"${2:+, \"min\": $2, \"max\": $3}}}}"
}

people() {
    curl -sS --fail-with-body -u admin:secret -H 'Content-Type: text/plain' "$URL/a/accounts/self/sshkeys" \
        --data-binary "@$FOLDER/keys/admin.pub" >/dev/null || return 1
    ask PUT groups/Core '{}' || return 1
    local name group
    for name in ci core dev; do
        case $name in ci) group='"Service Users"' ;; core) group='"Core"' ;; *) group= ;; esac
        ask PUT "accounts/$name" "{\"name\": \"$name\", \"email\": \"$name@example.com\", \"http_password\": \"$name-secret\",
            \"ssh_key\": \"$(cat "$FOLDER/keys/$name.pub")\", \"groups\": [$group]}" || return 1
    done
    label Verified '{"-2": "a", "-1": "b", " 0": "c", "+1": "d", "+2": "e"}' || return 1
    label Workflow '{"-1": "a", " 0": "b", "+1": "c"}' || return 1
    local verified workflow review
    verified=$(allow "Service Users" -2 2) workflow=$(allow Core -1 1) review=$(allow Core -2 2)
    ask POST projects/All-Projects/access "{\"add\": {\"refs/heads/*\": {\"permissions\": {
        \"label-Verified\": {\"label\": \"Verified\", ${verified#\{}, \"label-Workflow\": {\"label\": \"Workflow\", ${workflow#\{},
        \"label-Code-Review\": {\"label\": \"Code-Review\", ${review#\{}, \"submit\": $(allow "Service Users"),
        \"abandon\": $(allow Core), \"removeReviewer\": $(allow Core), \"editTopicName\": $(allow "Registered Users"),
        \"editHashtags\": $(allow "Registered Users"), \"toggleWipState\": $(allow Core),
        \"push\": {\"rules\": {\"Administrators\": {\"action\": \"ALLOW\", \"force\": true}, \"Service Users\": {\"action\": \"ALLOW\"}}}}}}}"
}

make_site() {
    [ -d "$SITE/git" ] && return
    if [ ! -e "$MADE" ]; then
        configure
        (run_java init -d "$SITE" --batch --dev --no-auto-start --skip-plugins) >"$FOLDER/init.log" 2>&1 </dev/null ||
            cannot "Gerrit's init failed: $(tail -3 "$FOLDER/init.log" | tr '\n' ' ')"
        rm -f "$SITE"/bin/*.war
        mkdir -p "$FOLDER/keys"
        local name
        for name in admin ci core dev; do ssh-keygen -q -t ed25519 -N '' -C "$name" -f "$FOLDER/keys/$name"; done
        start
        people || cannot "the accounts could not be made"
        stop TERM
        tar -C "$FOLDER" --exclude=site/logs/* -cf "$MADE.$$" site keys && mv "$MADE.$$" "$MADE"
    else
        tar -C "$FOLDER" -xf "$MADE" || cannot "$MADE cannot be unpacked"
    fi
}

# --- the server ---

start() {
    configure
    rm -f "$SITE/logs/gerrit.pid"
    (run_java daemon -d "$SITE" --headless --console-log) >>"$FOLDER/server.log" 2>&1 </dev/null &
    SERVER=$!
    local tries
    for tries in $(seq 900); do
        # It listens for SSH before it does for HTTP.
        curl -sf -o /dev/null "$URL/config/server/version" && break
        kill -0 $SERVER 2>/dev/null || cannot "Gerrit ended at once: $(tail -3 "$FOLDER/server.log" | tr '\n' ' ')"
        [ "$tries" -lt 900 ] || { stop KILL; cannot "Gerrit did not answer within 180 s"; }
        sleep 0.2
    done
    echo "[127.0.0.1]:$SSH $(cat "$SITE/etc/ssh_host_ed25519_key.pub")" >"$FOLDER/known_hosts"
}

stop() { # SIGNAL
    [ -n "$SERVER" ] || return
    kill "-$1" "$SERVER" 2>/dev/null
    wait "$SERVER" 2>/dev/null
    SERVER=
}

trap 'stop KILL' EXIT
for program in curl git ssh ssh-keygen tar flock; do command -v $program >/dev/null || cannot "there is no $program"; done
find_java
mkdir -p "$STORE" "$FOLDER" || cannot "$STORE cannot be made"
# One makes it, others that start at the same time wait for that.
exec 9>"$STORE/lock"
flock 9
download
make_site
flock -u 9
exec 9>&-
[ -n "$SERVER" ] || start
echo "READY $GERRIT_VERSION"
while read -r order; do
    case $order in
    stop) stop TERM && echo STOPPED ;;
    kill) stop KILL && echo STOPPED ;;
    start) start && echo "READY $GERRIT_VERSION" ;;
    *) echo "what is $order?" ;;
    esac
done
