#!/bin/sh
# Announces the prefix while the host on this machine takes packets, and withdraws it when it does not.
announced=no
while sleep 0.5; do
    if "${ASTERISM:-asterism}" status --socket "$CONTROL" >/dev/null 2>&1; then now=yes; else now=no; fi
    [ "$now" = "$announced" ] && continue
    if [ "$now" = yes ]; then action=enable; else action=disable; fi
    birdc -s "$BIRD" "$action" outside_prefix >/dev/null && announced=$now
done
