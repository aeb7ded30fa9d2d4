-- Every bid with its day and minute.
SELECT auction, bidder, price, date_time, extra, strftime(make_timestamp(date_time * 1000), '%Y-%m-%d'), strftime(make_timestamp(date_time * 1000), '%H:%M') FROM bids;
-- What the job wrote.
SELECT * FROM read_csv('{results}', header = true, columns = {auction: 'BIGINT', bidder: 'BIGINT', price: 'BIGINT', date_time: 'BIGINT', extra: 'VARCHAR', day: 'VARCHAR', minute: 'VARCHAR'});
