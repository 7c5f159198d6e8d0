-- audit_terminal: note in the audit of a conversation that a terminal was opened or closed in its sandbox, or a preview opened.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  1 id of the request   2 now, UTC text with Z   3 terminal_opened | terminal_closed | preview_opened
--       4 who has opened it, as canonical JSON   5 which one and where, as canonical JSON
-- Returns  {"done", revision, execution_status, created_at, updated_at, groups, title, whether approvals matter}
--          | false: no such conversation
-- Cost  O(1)
-- Idempotent  a repeat finds its entry among the last ones
-- Log  not guarded: the audit is no part of the log
-- include: _audit.lua
local LAST = 16 -- entries in which a repeat looks for its own
if not open_log(ARGV[1]) then return false end
for _, entry in ipairs(redis.call('LRANGE', root .. ':audit', -LAST, -1)) do
  if string.find(entry, '"decision":"' .. ARGV[3] .. '"', 1, true) and string.find(entry, '"reason":' .. ARGV[5] .. ',', 1, true) then
    return close_log('done', ARGV[2])
  end
end
write_audit(ARGV[3], {}, ARGV[4], ARGV[5], ARGV[2])
change_approvals()
return close_log('done', ARGV[2])
