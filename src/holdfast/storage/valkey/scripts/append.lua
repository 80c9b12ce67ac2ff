-- Add messages to a session and keep it for its time; how many it held before the oldest of too many left.
--
-- A session is one sorted set. At place 0 is its head: when it expires by the caller's clock, the place of its last
-- message, until when, by the server's clock, the indexes hold it, and the id of the session that it was written under.
-- Its messages are at the places from 1 on. What an earlier session of the name left goes first. The server's TTL is
-- the backstop. Given the same messages again (an answer was lost), none is added twice.
--
-- The indexes are written for twice the time of a session, so that most writes need not touch them, and struck off by
-- the server's clock: whatever the clocks of callers say, they name a session for as long as the server has it. On the
-- list of what is due a session may stand too early, never too late.
--
-- All of it happens or none: if memory has run out, the server refuses the first command that would need some.
-- Numbers are handed on as the texts that they came as, since turning them into text takes longer than all the rest.
local session, of_user, of_agent, due = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local now, expires, lasting, most = tonumber(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4])
local id = ARGV[5]
local given = #ARGV - 5
local clock = redis.call('TIME')
local today = clock[1] * 1000 + math.floor(clock[2] / 1000)

local head = redis.call('ZRANGE', session, '0', '0')[1]
local ends, place, noted = 0, 0, '0'
if head then
    local of
    ends, place, noted, of = string.match(head, '^(%d+) (%d+) (%d+) (.*)$')
    ends, place = tonumber(ends), tonumber(place)
    if ends <= now or of ~= id then
        redis.call('DEL', session)
        head, place, noted = nil, 0, '0'
    end
end
local is_noted = today + lasting <= tonumber(noted)
if not is_noted then
    noted = string.format('%.0f', today + 2 * lasting)
end

local renewed = expires .. string.format(' %d ', place + given) .. noted .. ' ' .. id
local added = {'ZADD', session, 'NX', '0', renewed}
for at = 1, given do
    if #added > 4000 then -- no more fit into one call
        redis.call(unpack(added))
        added = {'ZADD', session, 'NX'}
    end
    added[#added + 1] = string.format('%d', place + at)
    added[#added + 1] = ARGV[at + 5]
end
redis.call(unpack(added))
if head and head ~= renewed then
    redis.call('ZREM', session, head)
end
local held = redis.call('ZCARD', session) - 1
if held > most then
    redis.call('ZREMRANGEBYRANK', session, '1', string.format('%d', held - most))
end
redis.call('PEXPIRE', session, lasting)

if not is_noted or tonumber(expires) < ends then
    local name = string.match(session, ':session:(.+)$')
    redis.call('ZADD', due, expires, name)
    if not is_noted then
        for _, index in ipairs({of_user, of_agent}) do
            redis.call('ZREMRANGEBYSCORE', index, '-inf', string.format('(%.0f', today))
            redis.call('ZADD', index, noted, name)
        end
        redis.call('ZREMRANGEBYSCORE', due, '-inf', string.format('%.0f', now - 3000 * lasting))
        for _, index in ipairs({of_user, of_agent, due}) do
            if redis.call('PTTL', index) < 2 * lasting then
                redis.call('PEXPIRE', index, string.format('%.0f', 2 * lasting))
            end
        end
    end
end
return held
