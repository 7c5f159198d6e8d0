-- audit_terminal: audit that a terminal was opened or closed in a conversation's sandbox, a preview opened, a push
-- begun, or a rule of the conversation made or revoked.
-- KEYS  root of the conversation
-- ARGV  id_prefix:text of the request  time:text now, UTC with Z
--       what:text terminal_opened, terminal_closed, preview_opened, push_begun, rule_made or rule_revoked
--       actor:json canonical  reason:json which one and where, canonical
-- Returns  "done"(state:log_state) | missing: no such conversation
-- Cost  O(1)
-- Idempotent  a repeat finds its entry among the last ones
-- Log  not guarded: the audit is not in the log
-- include: _audit.lua
local LAST = 16 -- last entries that a repeat searches for its own
if not open_log(id_prefix) then return false end
for _, entry in ipairs(redis.call('LRANGE', root .. ':audit', -LAST, -1)) do
  if string.find(entry, '"decision":"' .. what .. '"', 1, true) and string.find(entry, '"reason":' .. reason .. ',', 1, true) then
    return close_log('done', time)
  end
end
write_audit(what, {}, actor, reason, time)
change_approvals()
return close_log('done', time)
