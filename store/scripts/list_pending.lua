-- list_pending: return a page of the pending actions, in log order.
-- KEYS  root of the conversation
-- ARGV  after:int seq  most_bytes:int after which the page ends
-- Returns  (seq:int since:text event:bytes)*: as stored | missing: no such conversation
-- Cost  O(p log p): p open actions; the reply has at most most_bytes and one event
-- Idempotent  reads only
-- Log  not guarded: open actions stay in Redis
-- include: _actions.lua
-- include: _frame.lua
if not open_log('') then return false end
local page, size = {}, 0
for _, action in ipairs(log.status == 'waiting_for_confirmation' and undecided(open_actions()) or {}) do
  if action.seq > after then
    if size >= most_bytes then break end
    local bytes = redis.call('LINDEX', root .. ':log', action.seq - 1)
    page[#page + 1], page[#page + 2], page[#page + 3] = action.seq, action.since, bytes
    size = size + size_of(bytes)
  end
end
return page
