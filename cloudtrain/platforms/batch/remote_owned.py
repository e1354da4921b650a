"""`cloudtrain._system.owned` for ``/bin/sh``: the check of a folder on a cluster that is not mounted here."""

from __future__ import annotations

OPEN = 48
"""The exit code if another user could change or replace a folder. Stderr says which, and why."""

OWN_FOLDER = f"""open() {{ echo "$own $*" >&2; exit {OPEN}; }}
own_folder() {{
own=$(cd "$1" && pwd -P) || exit
case $1 in /*) p=$1;; *) p=$PWD/$1;; esac
group= me=$(id -u)
while [ "$p" ]; do
if [ -L "$p" ]; then set -f; set -- $(LC_ALL=C ls -ldn "$p"); set +f
[ "$3" = 0 ] || [ "$3" = "$me" ] || open "leads through $p, a link of another user"; fi
p=${{p%/*}}
done
p=$own
while :; do
set -f; set -- $(LC_ALL=C ls -ldn "$p/"); set +f
if [ "$3" != 0 ] && [ "$3" != "$me" ]; then
[ "$p" = "$own" ] && open "belongs to another user"
open "can be replaced by the owner of $p, another user"; fi
case $1 in ?????w*|????????w*)
if [ "$p" = "$own" ]; then chmod go-w "$p" || open "can be written by other users"; else case $1 in
?????????[tT]*) ;;
????????w*) open "can be replaced by other users: all may write to $p";;
*) [ "$4" = 0 ] || {{ [ "$4" = "$(id -g)" ] && [ "$(id -gn)" = "$(id -un)" ]; }} || group=$p;;
esac; fi;; esac
case $1 in ??????[-S]??[-T]*) [ "$p" = "$own" ] || [ "$p" = "$group" ] || group=;; esac
[ "$p" ] && [ "$p" != / ] || break
p=${{p%/*}}
done
[ -z "$group" ] || open "can be replaced by other users: its group may write to $group"
}}
"""
"""``own_folder FOLDER`` ends the script with `OPEN`, unless only this user and root can change and replace the folder.

``pwd -P`` has no links, and no other user can put one into a folder that passes. Some group write is harmless: that of
the user's own group, and that below a folder which lets only its owner in.
"""

OPEN_HINT = "Choose a folder of your own, in folders that belong to you or to root, or close that one with chmod go-w."
