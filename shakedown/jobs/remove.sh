absent=0
for _ in 1 2 3 4 5 6 7 8; do
    found=$(LISTING) || { echo "ENGINE does not say which containers there are" >&2; exit 1; }
    if [ -n "$found" ]; then
        absent=0
        ENGINE rm --force $found || sleep 1
    elif [ $absent = 1 ]; then
        exit 0
    else
        absent=1
        sleep 1
    fi
done
echo "still there, or there again, after rm --force:" $found >&2
exit 1
