-- read_changes: return a page of the inbox' changes after an id, and which changes the stream stores.
-- KEYS  root of the approvals
-- ARGV  after:text id  most:int changes  most_bytes:int after which the page ends
-- Returns  (held:int first:text last:text changes:(id:text fields:hash)[]): number of stored changes, their first and
--          last id, "" if there are none
-- Cost  O(log s + m): s stored changes, m read ones
-- Idempotent  reads only
local STRIDE = 16
local first = redis.call('XRANGE', root .. ':stream', '-', '+', 'COUNT', 1)[1]
local last = redis.call('XREVRANGE', root .. ':stream', '+', '-', 'COUNT', 1)[1]
local page, size = {}, 0
while most > 0 and size < most_bytes do
  local changes = redis.call('XRANGE', root .. ':stream', '(' .. after, '+', 'COUNT', math.min(most, STRIDE))
  if #changes == 0 then break end
  for _, change in ipairs(changes) do
    if size >= most_bytes then break end
    page[#page + 1], page[#page + 2] = change[1], change[2]
    for _, part in ipairs(change[2]) do size = size + #part end
    after = change[1]
    most = most - 1
  end
end
return {redis.call('XLEN', root .. ':stream'), first and first[1] or '', last and last[1] or '', page}
