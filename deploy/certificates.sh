#!/bin/sh
# Make the certificates of a swarm (docs/swarm.md): a node without one gets no connection.
#
#     sh deploy/certificates.sh FOLDER "HOST ..." NAME ...
#
# FOLDER/ca.pem ca.key                     the swarm's authority, made once: it signs new nodes, so
#                                          keep ca.key, and give it to nobody
# FOLDER/NAME/ca.pem NAME.pem NAME.key     all that the node or relay NAME needs: copy it there
#
# HOST: DNS names and addresses at which nodes or relays are reached; this machine's own are added.
# Certificates hold for 365 days, or for $DAYS; the authority holds for ten years.
set -euf
umask 077
if [ $# -lt 3 ]; then
    echo "expected FOLDER \"HOST ...\" NAME ..." >&2
    exit 2
fi
folder=$1 hosts=$2
shift 2

san=
for host in localhost 127.0.0.1 ::1 $hosts; do
    case $host in
        *[!A-Za-z0-9._:*-]*) echo "'$host' is no host; expected a DNS name or address" >&2; exit 2 ;;
        *:*) kind=IP ;;
        *[!0-9.]*) kind=DNS ;;
        *) kind=IP ;;
    esac
    san=${san:+$san,}$kind:$host
done
seen=' '
for name; do
    case $seen in *" $name "*) echo "'$name' comes twice" >&2; exit 2 ;; esac
    seen="$seen$name "
    case $name in
        '' | ca | *[!a-z0-9-]*) echo "'$name' cannot be a node's name: a-z, 0-9, -" >&2; exit 2 ;;
    esac
    if [ -e "$folder/$name" ]; then
        echo "$folder/$name is there, and is left as it is; remove it for a new key" >&2
        exit 2
    fi
done

absent=
for file in ca.pem ca.key; do
    [ -e "$folder/$file" ] || absent="$absent $file"
done
case $absent in
    ' ca.pem' | ' ca.key')
        echo "$folder lacks$absent; put it back, or name another FOLDER" >&2
        exit 2
        ;;
esac

mkdir -p "$folder"
settings=$(mktemp)
begun= # removed if it is not finished, as what is there is left as it is
trap 'rm -rf "$settings" ${begun:+"$begun"}' EXIT
trap 'exit 130' INT TERM
cat > "$settings" << END
[req]
distinguished_name = subject
[subject]
[authority]
basicConstraints = critical, CA:TRUE, pathlen:0
[node]
basicConstraints = critical, CA:FALSE
extendedKeyUsage = clientAuth, serverAuth
subjectAltName = $san
END

key() { openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 \
    -pkeyopt ec_param_enc:named_curve -out "$1"; }
request() { openssl req -new -config "$settings" -key "$1" -subj "/CN=$2"; }

if [ "$absent" ]; then
    begun=$folder/ca.key
    key "$folder/ca.key"
    openssl req -x509 -new -config "$settings" -extensions authority -key "$folder/ca.key" \
        -subj "/CN=potluck swarm" -days 3650 -out "$folder/ca.pem"
    begun=
fi
for name; do
    own=$folder/$name/$name
    mkdir "$folder/$name"
    begun=$folder/$name
    key "$own.key"
    request "$own.key" "$name" | openssl x509 -req -CA "$folder/ca.pem" -CAkey "$folder/ca.key" \
        -set_serial "0x$(openssl rand -hex 16)" -days "${DAYS:-365}" \
        -extfile "$settings" -extensions node -out "$own.pem"
    cp "$folder/ca.pem" "$folder/$name/ca.pem"
    begun=
    echo "$folder/$name: for $name; copy it to that machine, there [swarm.tls] folder names it"
done
