#!/bin/sh
@{ values.mark }@
#
# Not a drain: edits garden's bpm.yml (bpm.yml.erb), which it reads on stdin and writes on stdout, with
# -s before tini's other arguments. tini takes in orphans only if it is PID 1, or a subreaper, which -s
# makes it; here container-run comes before it.
#
# Assumed: a process whose executable is tini, with its args behind that line, as a list of lines or
# in brackets. Without one it fails, and says what it looked for. Edited twice is edited once; line
# ends stay what they are.

set -u

newline='
'
carriage_return=$(printf '\r')

# plain TEXT: without quotes, a comma behind it, or blanks around it; left in $plain.
plain() {
  plain=${1%"$carriage_return"}
  plain=${plain#"${plain%%[! ]*}"}
  plain=${plain%"${plain##*[! ]}"}
  plain=${plain%,}
  plain=${plain#[\"\']}
  plain=${plain%[\"\']}
}

# What comes next: executable (any line may name tini), args (tini's), or item (the first of them).
next=executable
edited=no

# list_item LINE: the first argument, or what stands before it.
list_item() {
  plain "$1"
  case $plain in
    -\ *)
      plain "${plain#- }"
      [ "$plain" = -s ] || printf '%s- -s%s%s' "${1%%[! ]*}" "$end" "$newline"
      next=executable edited=yes
      ;;
    # Comments, and the lines of a template.
    '' | '#'* | '<%'*) ;;
    *) next=executable ;;
  esac
}

# edit_line LINE: leaves the line, as it must be, in $edited_line.
edit_line() {
  edited_line=$1
  [ "$next" != item ] || list_item "$1"
  plain "$1"
  # The next process, without args of the one before.
  case $plain in '- name:'*) next=executable ;; esac
  case $next:${plain#- } in
    *:executable:*)
      plain "${plain#*executable:}"
      next=executable
      case $plain in tini | */tini) next=args ;; esac
      ;;
    args:args:)
      next=item end=''
      case $1 in *"$carriage_return") end=$carriage_return ;; esac
      ;;
    args:args:*\[*)
      next=executable edited=yes
      plain "${1#*\[}"
      case $plain in
        -s | -s[\ ,\"\'\]]*) ;;
        *) edited_line="${1%%\[*}[-s, ${1#*\[}" ;;
      esac
      ;;
  esac
}

while IFS= read -r line; do
  edit_line "$line"
  printf '%s%s' "$edited_line" "$newline"
done
# The last line may have no end.
[ -z "$line" ] || {
  edit_line "$line"
  printf '%s' "$edited_line"
}
[ "$edited" = yes ] || {
  echo 'looked for a process whose executable is tini, and for its args' >&2
  exit 1
}
