# A B+-tree of slots with snapshots.  Needs slots.pxi.
#
# A leaf holds slots and the low word of each item's state (little-endian), an inner node its children with
# their lowest slots, counts and states.  The lowest slot of a node is a lower bound of its
# items and the one in its parent is the same; that of a whole level's first node is zero.
#
# A node is stamped with the epoch of its birth.  A snapshot takes the root and ends the epoch.
# A node older than the newest snapshot is copied before it changes, and kept in the list of
# that snapshot: the newest one that sees it.  When a snapshot goes, the nodes that an older one
# sees move on to the one before it, the rest is freed.

from libc.stdlib cimport calloc, free, malloc

cdef enum:
    DEPTH_MAX = 64
    WIDTH_MIN = 4
    WIDTH_MAX = 64
    WIDTH_USUAL = 40

cdef extern from *:
    """
    #if defined(__GNUC__) || defined(__clang__)
    #define culm_prefetch(address) __builtin_prefetch(address)
    #else
    #define culm_prefetch(address) ((void)(address))
    #endif
    """
    void prefetch "culm_prefetch"(const void *address) noexcept nogil

cdef struct Node:
    uint64_t birth
    Node *next          # in a snapshot's list, or in a list of spare nodes
    Py_ssize_t level    # 0 is a leaf
    Py_ssize_t count    # of items or of children

cdef struct Version:
    Node *root
    uint64_t count
    uint64_t epoch
    Node *kept
    Version *older
    Version *newer

cdef struct Store:
    Layout layout
    Py_ssize_t width    # how many entries a node has at most
    Py_ssize_t behind   # where in a node the part after the slots starts
    uint64_t epoch
    Version live
    Version *newest     # snapshot
    Py_ssize_t references
    Py_ssize_t memory   # bytes of all nodes

cdef struct Path:
    Py_ssize_t depth    # of the leaf
    Node *nodes[DEPTH_MAX]
    Py_ssize_t[DEPTH_MAX] places


cdef inline uint8_t *slot_of(const Store *store, Node *node, Py_ssize_t place) noexcept nogil:
    return <uint8_t *>node + sizeof(Node) + place * store.layout.stride


cdef inline uint8_t *short_of(const Store *store, Node *leaf, Py_ssize_t place) noexcept nogil:
    return <uint8_t *>leaf + store.behind + 8 * place


cdef inline uint64_t *counts_of(const Store *store, Node *inner) noexcept nogil:
    return <uint64_t *>(<uint8_t *>inner + store.behind)


cdef inline Node **children_of(const Store *store, Node *inner) noexcept nogil:
    return <Node **>(<uint8_t *>inner + store.behind + 8 * store.width)


cdef inline uint64_t *state_of(const Store *store, Node *inner, Py_ssize_t place) noexcept nogil:
    return <uint64_t *>(
        <uint8_t *>inner + store.behind + 16 * store.width + 8 * store.layout.words * place
    )


cdef inline Py_ssize_t size_of(const Store *store, Py_ssize_t level) noexcept nogil:
    if level == 0:
        return store.behind + 8 * store.width
    return store.behind + (16 + 8 * store.layout.words) * store.width


# Nodes come and go.

cdef Node *new_node(Store *store, Py_ssize_t level) except NULL:
    cdef Node *node = <Node *>malloc(size_of(store, level))
    if node == NULL:
        raise MemoryError
    store.memory += size_of(store, level)
    node.birth = store.epoch
    node.next = NULL
    node.level = level
    node.count = 0
    return node


cdef void free_node(Store *store, Node *node) noexcept:
    store.memory -= size_of(store, node.level)
    free(node)


cdef void free_list(Store *store, Node *node) noexcept:
    cdef Node *next
    while node != NULL:
        next = node.next
        free_node(store, node)
        node = next


cdef void free_tree(Store *store, Node *node) noexcept:
    cdef Py_ssize_t place
    if node.level:
        for place in range(node.count):
            free_tree(store, children_of(store, node)[place])
    free_node(store, node)


cdef inline bint is_seen(const Store *store, const Node *node) noexcept:
    """Whether a snapshot sees the node."""
    return store.newest != NULL and node.birth <= store.newest.epoch


cdef void drop(Store *store, Node *node) noexcept:
    """The live tree has no use for the node."""
    if is_seen(store, node):
        node.next = store.newest.kept
        store.newest.kept = node
    else:
        free_node(store, node)


cdef Node *own(Store *store, Node *node, Node **where) except NULL:
    """The node itself, or its copy put to `where` if a snapshot sees it."""
    cdef Node *copy
    if not is_seen(store, node):
        return node
    copy = new_node(store, node.level)
    memcpy(
        <uint8_t *>copy + sizeof(Node),
        <uint8_t *>node + sizeof(Node),
        size_of(store, node.level) - sizeof(Node),
    )
    copy.count = node.count
    where[0] = copy
    drop(store, node)
    return copy


cdef int own_path(Store *store, Path *path) except -1:
    cdef Py_ssize_t depth
    cdef Node **where = &store.live.root
    for depth in range(path.depth + 1):
        path.nodes[depth] = own(store, path.nodes[depth], where)
        if depth < path.depth:
            where = children_of(store, path.nodes[depth]) + path.places[depth]
    return 0


cdef Version *take_snapshot(Store *store) except NULL:
    cdef Version *version = <Version *>malloc(sizeof(Version))
    if version == NULL:
        raise MemoryError
    version.root = store.live.root
    version.count = store.live.count
    version.epoch = store.epoch
    version.kept = NULL
    version.newer = NULL
    version.older = store.newest
    if store.newest != NULL:
        store.newest.newer = version
    store.newest = version
    store.epoch += 1
    return version


cdef void release_snapshot(Store *store, Version *version) noexcept:
    cdef Version *older = version.older
    cdef Node *node = version.kept
    cdef Node *next
    while node != NULL:
        next = node.next
        if older != NULL and node.birth <= older.epoch:
            node.next = older.kept
            older.kept = node
        else:
            free_node(store, node)
        node = next
    if older != NULL:
        older.newer = version.newer
    if version.newer != NULL:
        version.newer.older = older
    else:
        store.newest = older
    free(version)


cdef Store *new_store(
    int kind, Py_ssize_t item_size, bint varying, Py_ssize_t width
) except NULL:
    cdef Layout layout
    cdef Store *store
    lay_out(&layout, kind, item_size, varying)
    if not WIDTH_MIN <= width <= WIDTH_MAX:
        raise ValueError(f"a node has room for {WIDTH_MIN} to {WIDTH_MAX} entries")
    store = <Store *>calloc(1, sizeof(Store))
    if store == NULL:
        raise MemoryError
    store.layout = layout
    store.width = width
    store.behind = sizeof(Node) + width * layout.stride
    store.epoch = 1
    store.references = 1
    try:
        store.live.root = new_node(store, 0)
    except MemoryError:
        free(store)
        raise
    return store


cdef void leave_store(Store *store) noexcept:
    """One object less refers to the store; the last one takes it along."""
    store.references -= 1
    if store.references == 0:
        free_tree(store, store.live.root)
        free(store)


# Reading.

cdef inline Node *expect(const Store *store, Node *node) noexcept nogil:
    """The node, whose slots are on their way from memory, all of them at the same time.

    A search would wait for them one after the other.
    """
    cdef Py_ssize_t at
    for at in range(0, store.behind, 64):
        prefetch(<const uint8_t *>node + at)
    return node


cdef inline Py_ssize_t child_for(const Store *store, Node *inner, const uint8_t *key) noexcept nogil:
    return below(&store.layout, slot_of(store, inner, 1), inner.count - 1, key, True)


cdef inline void set_run(
    const Store *store, Run *run, Node *leaf, uint64_t rank, uint64_t count,
    const uint64_t *whole,
) noexcept nogil:
    # Without a look into the leaf, which may be on its way from memory.
    run.rank, run.count, run.whole = rank, <Py_ssize_t>count, whole
    run.slots, run.shorts = slot_of(store, leaf, 0), short_of(store, leaf, 0)


cdef inline const uint64_t *add_children(
    const Store *store, Node *inner, Py_ssize_t count, const uint64_t *whole, uint64_t *state
) noexcept nogil:
    """Add the states of the first `count` children; the result is that of the next one.

    The state of all children together is `whole`, if that is not NULL.
    """
    cdef Py_ssize_t place
    if whole != NULL and 2 * count > inner.count:
        add(store.layout.kind, state, whole)
        for place in range(count, inner.count):
            take_away(store.layout.kind, state, state_of(store, inner, place))
    else:
        for place in range(count):
            add(store.layout.kind, state, state_of(store, inner, place))
    return state_of(store, inner, count)


cdef void seek_key(
    const Store *store, const Version *version, const uint8_t *key, Run *run, uint64_t *state
) noexcept nogil:
    """The leaf where `key` is, or would be; the states before it are added to `state`."""
    cdef Node *node = version.root
    cdef uint64_t rank = 0, count = version.count
    cdef const uint64_t *whole = NULL
    cdef Py_ssize_t place, before
    while node.level:
        place = child_for(store, node, key)
        for before in range(place):
            rank += counts_of(store, node)[before]
        if state != NULL:
            whole = add_children(store, node, place, whole, state)
        count = counts_of(store, node)[place]
        node = expect(store, children_of(store, node)[place])
    set_run(store, run, node, rank, count, whole)


cdef void seek_rank(
    const Store *store, const Version *version, uint64_t rank, Run *run, uint64_t *state
) noexcept nogil:
    """The leaf of the item at `rank`, at the end the last one; else as `seek_key`."""
    cdef Node *node = version.root
    cdef uint64_t before = 0, count = version.count
    cdef const uint64_t *whole = NULL
    cdef Py_ssize_t place
    while node.level:
        place = 0
        while place < node.count - 1 and rank - before >= counts_of(store, node)[place]:
            before += counts_of(store, node)[place]
            place += 1
        if state != NULL:
            whole = add_children(store, node, place, whole, state)
        count = counts_of(store, node)[place]
        node = children_of(store, node)[place]
        if state != NULL:
            expect(store, node)
    set_run(store, run, node, before, count, whole)


cdef void descend(const Store *store, const uint8_t *key, Path *path) noexcept nogil:
    """The way to where `key` is, or would be, in the live tree."""
    cdef Node *node = store.live.root
    cdef Py_ssize_t place
    path.depth = 0
    while node.level:
        place = child_for(store, node, key)
        path.nodes[path.depth] = node
        path.places[path.depth] = place
        path.depth += 1
        node = expect(store, children_of(store, node)[place])
    path.nodes[path.depth] = node
    path.places[path.depth] = below(
        &store.layout, slot_of(store, node, 0), node.count, key, False
    )


cdef bint is_found(const Store *store, const Path *path, const uint8_t *key) noexcept nogil:
    cdef Node *leaf = path.nodes[path.depth]
    cdef Py_ssize_t place = path.places[path.depth]
    return place < leaf.count and order(&store.layout, slot_of(store, leaf, place), key) == 0


# Writing: first all memory that will be needed, then the change, which cannot fail.

cdef void total(const Store *store, Node *node, uint64_t *count, uint64_t *state) noexcept nogil:
    cdef Py_ssize_t place
    clear(store.layout.kind, state)
    count[0] = 0
    if node.level == 0:
        count[0] = node.count
        add_items(&store.layout, state, slot_of(store, node, 0), node.count)
        return
    for place in range(node.count):
        count[0] += counts_of(store, node)[place]
        add(store.layout.kind, state, state_of(store, node, place))


cdef void move(
    const Store *store, Node *target, Py_ssize_t to, Node *source, Py_ssize_t start,
    Py_ssize_t count,
) noexcept nogil:
    """Move entries from place `start` on to place `to`; both may be of one node."""
    memmove(
        slot_of(store, target, to), slot_of(store, source, start), count * store.layout.stride
    )
    if target.level == 0:
        memmove(short_of(store, target, to), short_of(store, source, start), 8 * count)
        return
    memmove(counts_of(store, target) + to, counts_of(store, source) + start, 8 * count)
    memmove(children_of(store, target) + to, children_of(store, source) + start, 8 * count)
    memmove(
        state_of(store, target, to),
        state_of(store, source, start),
        8 * store.layout.words * count,
    )


cdef void set_child(
    const Store *store, Node *inner, Py_ssize_t place, const uint8_t *slot, Node *child
) noexcept nogil:
    memcpy(slot_of(store, inner, place), slot, store.layout.stride)
    children_of(store, inner)[place] = child
    total(store, child, counts_of(store, inner) + place, state_of(store, inner, place))


cdef void take_from(const Store *store, Node *inner, Py_ssize_t place) noexcept nogil:
    """Subtract the entry after `place` from the one at `place`."""
    counts_of(store, inner)[place] -= counts_of(store, inner)[place + 1]
    take_away(
        store.layout.kind, state_of(store, inner, place), state_of(store, inner, place + 1)
    )


cdef void give_to(const Store *store, Node *inner, Py_ssize_t place) noexcept nogil:
    """Add the entry after `place` to the one at `place`."""
    counts_of(store, inner)[place] += counts_of(store, inner)[place + 1]
    add(store.layout.kind, state_of(store, inner, place), state_of(store, inner, place + 1))


cdef inline void make_room(const Store *store, Node *node, Py_ssize_t place) noexcept nogil:
    move(store, node, place + 1, node, place, node.count - place)
    node.count += 1


cdef Node *spare_nodes(Store *store, const Path *path) except? NULL:
    """As many new nodes as an insertion will split, the leaf first; a new root comes last."""
    cdef Node *first = NULL
    cdef Node *node
    cdef Py_ssize_t depth = path.depth, top = path.depth, level
    while depth >= 0 and path.nodes[depth].count == store.width:
        depth -= 1
    # From the top down, so that the list has the leaf first.
    try:
        if depth < 0:
            first = new_node(store, top + 1)
        for level in range(top - depth - 1, -1, -1):
            node = new_node(store, level)
            node.next = first
            first = node
    except MemoryError:
        free_list(store, first)
        raise
    return first


cdef inline Node *take_spare(Node **spare) noexcept nogil:
    cdef Node *node = spare[0]
    spare[0] = node.next
    node.next = NULL
    return node


cdef Node *split(const Store *store, Node *node, Py_ssize_t at, Node **spare) noexcept nogil:
    """Move the entries from `at` on to a new node."""
    cdef Node *right = take_spare(spare)
    move(store, right, 0, node, at, node.count - at)
    right.count = node.count - at
    node.count = at
    return right


cdef Node *hang(
    Store *store, Path *path, Py_ssize_t depth, Node *child, Node **spare
) noexcept nogil:
    """Hang a new node in next to the one it was split from, which is at `depth`.

    The result is the node that the parent had to be split into, or NULL.
    """
    cdef Node *inner
    cdef Node *right = NULL
    cdef Py_ssize_t place, at
    cdef uint8_t[SLOT_SIZE_MAX] lowest
    if depth == 0:
        inner = take_spare(spare)
        memset(lowest, 0, store.layout.stride)
        set_child(store, inner, 0, lowest, path.nodes[0])
        set_child(store, inner, 1, slot_of(store, child, 0), child)
        inner.count = 2
        store.live.root = inner
        return NULL
    inner = path.nodes[depth - 1]
    place = path.places[depth - 1] + 1
    if inner.count == store.width:
        at = inner.count // 2
        right = split(store, inner, at, spare)
        if place > at:
            # The remaining entries are right already; only the two neighbours are not.
            inner = right
            place -= at
    make_room(store, inner, place)
    set_child(store, inner, place, slot_of(store, child, 0), child)
    take_from(store, inner, place - 1)
    return right


cdef void insert_here(
    Store *store, Path *path, const uint8_t *key, uint64_t short, Node *spare
) noexcept nogil:
    cdef Py_ssize_t depth = path.depth, place = path.places[path.depth], at
    cdef Node *node = path.nodes[depth]
    cdef Node *right = NULL
    cdef Node *target = node
    if node.count == store.width:
        # Items in ascending order leave full leaves behind.
        at = node.count if place == node.count else node.count // 2
        right = split(store, node, at, &spare)
        if place > at or (place == at and right.count == 0):
            target = right
            place -= at
    make_room(store, target, place)
    memcpy(slot_of(store, target, place), key, store.layout.stride)
    store_64(short_of(store, target, place), short)
    while right != NULL:
        right = hang(store, path, depth, right, &spare)
        depth -= 1


cdef bint insert(Store *store, const uint8_t *key) except -1:
    cdef Path path
    cdef uint64_t[WORDS_MAX] lifted
    cdef Node *spare
    cdef Py_ssize_t depth
    descend(store, key, &path)
    if is_found(store, &path, key):
        return False
    spare = spare_nodes(store, &path)
    try:
        own_path(store, &path)
    except MemoryError:
        free_list(store, spare)
        raise
    lift_slot(&store.layout, lifted, key)
    for depth in range(path.depth):
        counts_of(store, path.nodes[depth])[path.places[depth]] += 1
        add(
            store.layout.kind, state_of(store, path.nodes[depth], path.places[depth]), lifted
        )
    store.live.count += 1
    insert_here(store, &path, key, lifted[0], spare)
    return True


cdef inline Py_ssize_t count_min(const Store *store, Py_ssize_t level) noexcept nogil:
    """How many entries a node keeps without help from a neighbour."""
    return max(store.width // 4, 2 if level else 1)


cdef inline Py_ssize_t neighbour_of(Py_ssize_t place) noexcept nogil:
    return place - 1 if place else 1


cdef int own_neighbours(Store *store, Path *path) except -1:
    """Own whichever neighbours of the path's nodes may have to help one that loses an entry."""
    cdef Py_ssize_t depth
    cdef Node *node
    cdef Node **where
    for depth in range(path.depth, 0, -1):
        node = path.nodes[depth]
        if node.count > count_min(store, node.level):
            break
        where = children_of(store, path.nodes[depth - 1]) + neighbour_of(path.places[depth - 1])
        own(store, where[0], where)
    return 0


cdef bint even_out(Store *store, Node *inner, Py_ssize_t place) noexcept:
    """Make one of the children at and after `place`, or else two of one size.

    Whether it is one.
    """
    cdef Node *left = children_of(store, inner)[place]
    cdef Node *right = children_of(store, inner)[place + 1]
    cdef Py_ssize_t wanted = (left.count + right.count) // 2, moved
    give_to(store, inner, place)
    if left.count + right.count <= store.width:
        move(store, left, left.count, right, 0, right.count)
        left.count += right.count
        move(store, inner, place + 1, inner, place + 2, inner.count - place - 2)
        inner.count -= 1
        drop(store, right)
        return True
    if left.count > wanted:
        moved = left.count - wanted
        move(store, right, moved, right, 0, right.count)
        move(store, right, 0, left, wanted, moved)
    else:
        moved = left.count - wanted
        move(store, left, left.count, right, 0, -moved)
        move(store, right, 0, right, -moved, right.count + moved)
    left.count -= moved
    right.count += moved
    set_child(store, inner, place + 1, slot_of(store, right, 0), right)
    take_from(store, inner, place)
    return False


cdef bint discard(Store *store, const uint8_t *key) except -1:
    cdef Path path
    cdef uint64_t[WORDS_MAX] lifted
    cdef Py_ssize_t depth, place
    cdef Node *node
    descend(store, key, &path)
    if not is_found(store, &path, key):
        return False
    own_path(store, &path)
    own_neighbours(store, &path)
    lift_slot(&store.layout, lifted, key)
    for depth in range(path.depth):
        node, place = path.nodes[depth], path.places[depth]
        counts_of(store, node)[place] -= 1
        take_away(store.layout.kind, state_of(store, node, place), lifted)
    store.live.count -= 1
    node, place = path.nodes[path.depth], path.places[path.depth]
    node.count -= 1
    move(store, node, place, node, place + 1, node.count - place)
    depth = path.depth
    while depth and path.nodes[depth].count < count_min(store, path.nodes[depth].level):
        depth -= 1
        place = path.places[depth]
        if not even_out(store, path.nodes[depth], min(place, neighbour_of(place))):
            break
    node = store.live.root
    if node.level and node.count == 1:
        store.live.root = children_of(store, node)[0]
        drop(store, node)
    return True


# Loading: whole levels, from the leaves up.

cdef struct Row:
    # The nodes of the level that is being made, with their parents' entries for them.
    Py_ssize_t count
    Node **nodes
    uint64_t *counts
    uint64_t *states


cdef void free_row(Store *store, Row *row, Py_ssize_t start, Py_ssize_t stop) noexcept:
    cdef Py_ssize_t at
    for at in range(start, stop):
        free_tree(store, row.nodes[at])


cdef inline Py_ssize_t share(Py_ssize_t count, Py_ssize_t parts, Py_ssize_t part) noexcept nogil:
    """How many of `count` things the one of `parts` equal shares has."""
    return count // parts + (part < count % parts)


cdef Node *load_leaf(
    Store *store, Row *row, const uint8_t *data, const uint64_t *cuts, Py_ssize_t at,
    Py_ssize_t count
) except NULL:
    """A leaf of `count` items, from `at` on."""
    cdef const Layout *layout = &store.layout
    cdef uint64_t[WORDS_MAX] lifted
    cdef uint64_t *state = row.states + row.count * layout.words
    cdef Node *leaf = new_node(store, 0)
    cdef uint8_t *slot
    cdef Py_ssize_t place, start, size = layout.item_size
    row.nodes[row.count] = leaf
    row.counts[row.count] = count
    row.count += 1
    clear(layout.kind, state)
    for place in range(count):
        start = (at + place) * size
        slot = slot_of(store, leaf, place)
        if cuts != NULL:
            start = cuts[at + place]
            size = cuts[at + place + 1] - start
        put_slot(layout, slot, data + start, size)
        if cuts == NULL:
            size = layout.item_size
        lift_into(layout.kind, lifted, slot, size)
        add(layout.kind, state, lifted)
        store_64(short_of(store, leaf, place), lifted[0])
        leaf.count += 1
        if place and order(layout, slot - layout.stride, slot) >= 0:
            raise ValueError(f"item {at + place} is not above the one before it")
    return leaf


cdef int load_parents(Store *store, Row *row, Py_ssize_t fill) except -1:
    """Make the level above the one in `row`, and put it in its place."""
    cdef Py_ssize_t parents = (row.count + fill - 1) // fill, made, used = 0, place, count
    cdef Py_ssize_t words = store.layout.words
    cdef Node *inner
    for made in range(parents):
        try:
            inner = new_node(store, row.nodes[used].level + 1)
        except MemoryError:
            free_row(store, row, used, row.count)
            row.count = made
            raise
        count = share(row.count, parents, made)
        for place in range(count):
            memcpy(
                slot_of(store, inner, place),
                slot_of(store, row.nodes[used], 0),
                store.layout.stride,
            )
            children_of(store, inner)[place] = row.nodes[used]
            counts_of(store, inner)[place] = row.counts[used]
            memcpy(state_of(store, inner, place), row.states + used * words, 8 * words)
            used += 1
        if made == 0:
            memset(slot_of(store, inner, 0), 0, store.layout.stride)
        inner.count = count
        row.nodes[made] = inner
        total(store, inner, row.counts + made, row.states + made * words)
    row.count = parents
    return 0


cdef int load(
    Store *store, const uint8_t *data, const uint64_t *cuts, Py_ssize_t count
) except -1:
    """Fill an empty tree with ascending items: of one size, or between `cuts` into `data`."""
    cdef Py_ssize_t fill = store.width * 7 // 8, at = 0, made, size
    cdef Py_ssize_t leaves = (count + fill - 1) // fill
    cdef Node *leaf
    cdef Node *last = NULL
    cdef Row row
    if count == 0:
        return 0
    row.count = 0
    row.nodes = <Node **>malloc(8 * leaves)
    row.counts = <uint64_t *>malloc(8 * leaves)
    row.states = <uint64_t *>malloc(8 * leaves * store.layout.words)
    try:
        if row.nodes == NULL or row.counts == NULL or row.states == NULL:
            raise MemoryError
        for made in range(leaves):
            size = share(count, leaves, made)
            leaf = load_leaf(store, &row, data, cuts, at, size)
            if last != NULL and order(
                &store.layout, slot_of(store, last, last.count - 1), slot_of(store, leaf, 0)
            ) >= 0:
                raise ValueError(f"item {at} is not above the one before it")
            last = leaf
            at += size
        while row.count > 1:
            load_parents(store, &row, fill)
        drop(store, store.live.root)
        store.live.root = row.nodes[0]
        store.live.count = count
    except:
        free_row(store, &row, 0, row.count)
        raise
    finally:
        free(row.nodes)
        free(row.counts)
        free(row.states)
    return 0
